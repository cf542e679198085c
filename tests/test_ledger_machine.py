"""Random histories of scorers and their ledger, against a model that fits on a page.

The model knows what each person has paid and what each question was answered, and nothing of how a
ledger is kept. Whatever happens in whatever order, both must agree to the last bit.
"""

import copy
import os
import pickle
import shutil
import tempfile
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sklearn.base import clone

import sklearn_fairleak.auditor as auditor_module
import sklearn_fairleak.ledger as ledger_module
from sklearn_fairleak import (
    FairnessAuditor,
    PrivacyBudgetExceeded,
    PrivateFairnessScorer,
    UnknownIndividuals,
)
from sklearn_fairleak.exceptions import LedgerIntegrityError
from sklearn_fairleak.ledger import PrivacyLedger
from sklearn_fairleak.ledger_standing import Standing
from sklearn_fairleak.mechanisms import NoisySums

N = 12
IDS = [f"p{i}" for i in range(N)]
GROUPS = list("abbabaabbaab")
Y = np.array([1, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0])
BUDGET = Fraction(1)

#: What may be asked about: everybody, or some people in some order.
PEOPLE = [None, (0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11), (11, 0, 5, 2, 7, 1)]
MODELS = np.random.default_rng(0).integers(0, 2, (5, N)).astype(float)
TERMS = st.tuples(
    st.sampled_from(["statistical_parity", "equal_opportunity"]),
    st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)]),
    st.sampled_from([1, 2, 4]),
)


class Model:
    """Who has paid what, and what was answered."""

    def __init__(self):
        self.paid = [Fraction(0)] * N
        self.accounts = {}  # account: (limit, what each person has paid in it)
        self.answers = {}
        self.refusals = 0

    def open(self, account, limit):
        assert account not in self.accounts, "an account number is given once"
        self.accounts[account] = (limit, [Fraction(0)] * N)

    def affords(self, account, people, cost):
        limit, own = self.accounts[account]
        return all(self.paid[i] + cost <= BUDGET and own[i] + cost <= limit for i in people)

    def charge(self, account, people, cost):
        for i in people:
            self.paid[i] += cost
            self.accounts[account][1][i] += cost


class ScorerAndLedger(RuleBasedStateMachine):
    """What a developer, an auditor and bad luck can do."""

    scorers_at_once = 6

    def __init__(self):
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
        self.files = 0
        self.servers = []

    def teardown(self):
        for server in self.servers:
            server.close()
        self.ledger.close()
        shutil.rmtree(self.folder)

    @initialize(looked=st.booleans())
    def start(self, looked):
        self.model = Model()
        self.asked = {}  # how to put each question that was answered
        self.path = self.folder / "0.db"
        ledger = PrivacyLedger(self.path, epsilon=BUDGET)
        if looked:
            # Before it knows its people.
            assert (ledger.spent().epsilon, ledger.remaining()) == (0, 1.0)
            assert ledger.spent_per_individual().size == 0
        self.attach(ledger)
        self.noted = self.ledger.head()

    def attach(self, ledger):
        """Begin a process: an auditor on the ledger, and its first scorers."""
        self.ledger = ledger
        self.auditor = FairnessAuditor(GROUPS, ids=IDS, y_true=Y, ledger=ledger)
        self.scorers = []  # (scorer, metric, epsilon, n_queries, account)
        for terms in (("statistical_parity", Fraction(1, 2), 4), ("equal_opportunity", Fraction(1), 4)):
            self.agree(terms, embedded=False)

    def question(self, terms, models, people):
        """Return what the answer depends on, who pays for it, and how much."""
        _, metric, epsilon, n_queries, account = terms
        everyone = range(N) if people is None else people
        payers = [i for i in everyone if metric == "statistical_parity" or Y[i]]
        cost = epsilon / n_queries
        # Two models that agree on those asked about are the same question.
        values = tuple(map(tuple, MODELS[np.ix_(list(models), payers)].tolist()))
        return (metric, cost, values, people), payers, cost, account

    def put(self, scorer, models, people, joint):
        """Ask, in one of the two ways."""
        values = MODELS[list(models)]
        ids = None if people is None else [IDS[i] for i in people]
        if people is not None:
            values = values[:, list(people)]
        if joint:
            return scorer.answer_many(values, sample_ids=ids)
        return scorer.answer(values[0], sample_ids=ids)

    def told(self, answer):
        """Everything that was released, and whether it was known before."""
        release = getattr(answer, "answers", answer).release
        return (release.sums.tolist(), release.counts.tolist()), answer.replayed

    def ask(self, terms, models, people, joint, scorer=None):
        scorer = terms[0] if scorer is None else scorer
        key, payers, cost, account = self.question(terms, models, people)
        if key in self.model.answers:
            # Free and the same, also for those whose budget is used up, from whichever scorer.
            assert self.told(self.put(scorer, models, people, joint)) == (self.model.answers[key], True)
        elif self.model.affords(account, payers, cost):
            told, replayed = self.told(self.put(scorer, models, people, joint))
            assert not replayed
            self.model.charge(account, payers, cost)
            self.model.answers[key] = told
            self.asked[key] = models, people, joint
        else:
            with pytest.raises(PrivacyBudgetExceeded):
                self.put(scorer, models, people, joint)
            self.model.refusals += 1

    @precondition(lambda self: len(self.scorers) < self.scorers_at_once)
    @rule(terms=TERMS, embedded=st.booleans())
    def fit(self, terms, embedded):
        self.agree(terms, embedded)

    def agree(self, terms, embedded):
        metric, epsilon, n_queries = terms
        given = {"mechanism": NoisySums(design="sums"), "epsilon": float(epsilon), "n_queries": n_queries}
        if embedded:
            scorer = PrivateFairnessScorer(metric, auditor=self.auditor, **given)
            scorer._check_open()
        else:
            scorer = self.auditor.scorer(metric, **given)
        self.model.open(scorer._account, epsilon)
        self.scorers.append((scorer, metric, epsilon, n_queries, scorer._account))

    @rule(
        asked=st.lists(
            st.tuples(
                st.integers(0, 5),
                st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple),
                st.sampled_from(PEOPLE),
            ),
            min_size=2,
            max_size=8,
        )
    )
    def answer(self, asked):
        """One question for one model, and a joint one for more, in a row."""
        for k, models, people in asked:
            self.ask(self.scorers[k % len(self.scorers)], models, people, joint=len(models) > 1)

    @precondition(lambda self: self.model.answers)
    @rule(k=st.integers(0, 5), which=st.integers(0, 99))
    def ask_again(self, k, which):
        """A question that somebody had answered, put by a scorer of the same terms if there is one."""
        key = list(self.model.answers)[which % len(self.model.answers)]
        metric, cost = key[:2]
        same = [s for s in self.scorers if s[1] == metric and s[2] / s[3] == cost]
        if same:
            self.ask(same[k % len(same)], *self.asked[key])

    @rule(k=st.integers(0, 5), how=st.sampled_from([clone, copy.copy, copy.deepcopy]))
    def copied(self, k, how):
        """Copies pay from the same account."""
        terms = self.scorers[k % len(self.scorers)]
        self.scorers[k % len(self.scorers)] = (how(terms[0]), *terms[1:])

    @rule(k=st.integers(0, 5), epsilon=st.sampled_from([5.0, 100.0]))
    def parameters(self, k, epsilon):
        """What is set after the terms were agreed changes nothing."""
        self.scorers[k % len(self.scorers)][0].set_params(epsilon=epsilon, n_queries=1000)

    @rule(k=st.integers(0, 5), model=st.integers(0, 4), people=st.sampled_from(PEOPLE))
    def pickled(self, k, model, people):
        """A worker's handle asks over a socket and pays as the original does."""
        terms = self.scorers[k % len(self.scorers)]
        handle = pickle.loads(pickle.dumps(terms[0]))
        if self.auditor._server not in self.servers:
            self.servers.append(self.auditor._server)
        self.ask(terms, (model,), people, joint=False, scorer=handle)

    @rule(epsilon=st.sampled_from([BUDGET, None]), how=st.sampled_from(["close", "leave", "pickle"]))
    def reopen(self, epsilon, how):
        """A new process: accounts of the old one are closed, what they spent is not forgotten."""
        if how == "pickle":
            self.attach(pickle.loads(pickle.dumps(self.ledger)))
            return
        if how == "close":
            self.ledger.close()
        self.attach(PrivacyLedger(self.path, epsilon=epsilon))

    @rule()
    def wrong_budget(self):
        """No other budget can be put on the file, and trying changes nothing."""
        with pytest.raises(ValueError, match="budget belongs to the file"):
            PrivacyLedger(self.path, epsilon=BUDGET * 2)

    @rule()
    def other_people(self):
        with pytest.raises(LedgerIntegrityError, match="another data set"):
            FairnessAuditor(GROUPS, ids=[*IDS[:-1], "stranger"], ledger=self.ledger)

    @rule(k=st.integers(0, 5), people=st.sampled_from([(0,), (0, 0, 1), (99, 1)]))
    def malformed(self, k, people):
        """Errors cost nothing."""
        ids = [f"p{i}" for i in people]
        with pytest.raises((ValueError, UnknownIndividuals)):
            self.scorers[k % len(self.scorers)][0].answer([0.5] * len(ids), Y[: len(ids)], sample_ids=ids)

    @rule(
        k=st.integers(0, 5),
        model=st.integers(0, 4),
        people=st.sampled_from(PEOPLE),
        step=st.sampled_from(["reserve", "seal"]),
        error=st.sampled_from([KeyboardInterrupt, MemoryError]),
    )
    def interrupted_before_the_end(self, k, model, people, step, error):
        """Between the charge and the end of its transaction: neither of them happened."""
        terms = self.scorers[k % len(self.scorers)]
        self.interrupted(terms, model, people, ledger_module, step, error, after=True, happened=False)

    @rule(k=st.integers(0, 5), model=st.integers(0, 4), people=st.sampled_from(PEOPLE))
    def interrupted_before_the_return(self, k, model, people):
        """Between the charge and the developer: paid, and to be had again for nothing."""
        terms = self.scorers[k % len(self.scorers)]
        self.interrupted(
            terms,
            model,
            people,
            auditor_module,
            "PrivateAnswers",
            KeyboardInterrupt,
            after=False,
            happened=True,
        )
        self.ask(terms, (model,), people, joint=False)

    def interrupted(self, terms, model, people, module, name, error, *, after, happened):
        key, payers, cost, account = self.question(terms, (model,), people)
        if key in self.model.answers or not self.model.affords(account, payers, cost):
            return
        original, seen = getattr(module, name), []

        def stop(*arguments, **named):
            if after:
                original(*arguments)
            seen.append(named.get("release"))
            raise error

        setattr(module, name, stop)
        try:
            with pytest.raises(error):
                self.put(terms[0], (model,), people, joint=False)
        finally:
            setattr(module, name, original)
        if happened:
            self.model.charge(account, payers, cost)
            self.model.answers[key] = (seen[0].sums.tolist(), seen[0].counts.tolist())
            self.asked[key] = (model,), people, False

    @rule(
        k=st.integers(0, 5),
        model=st.integers(0, 4),
        people=st.sampled_from(PEOPLE),
        step=st.sampled_from(["reserve", "seal"]),
    )
    def power_cut(self, k, model, people, step):
        """What is on the disk in the middle of a transaction is all that the next process finds."""
        terms = self.scorers[k % len(self.scorers)]
        key, payers, cost, account = self.question(terms, (model,), people)
        if key in self.model.answers or not self.model.affords(account, payers, cost):
            return
        original = getattr(ledger_module, step)

        def photograph(*arguments):
            result = original(*arguments)
            self.image()
            return result

        setattr(ledger_module, step, photograph)
        try:
            self.put(terms[0], (model,), people, joint=False)
        finally:
            setattr(ledger_module, step, original)
        self.move_to_image()

    @rule(lost=st.integers(1, 40_000))
    def lost_tail(self, lost):
        """A log cut off at its end is an older ledger or none: never a third thing, and it is told."""
        self.image()
        image = self.folder / f"{self.files}.db"
        log = Path(f"{image}-wal")
        if not log.exists() or log.stat().st_size == 0:
            return
        os.truncate(log, max(0, log.stat().st_size - lost))
        now = self.ledger.head()
        try:
            older = PrivacyLedger(image, epsilon=None)
            older.verify()
            number = older.n_answers
            spent = older.spent_per_individual()
        except (LedgerIntegrityError, ValueError):
            return
        assert number <= len(self.model.answers)
        # An older ledger may not even know its people.
        assert spent.size == 0 or np.all(spent <= [float(paid) for paid in self.model.paid])
        if older.head() != now:
            with pytest.raises(LedgerIntegrityError, match="gone, or were rewritten"):
                older.verify(now)
        older.close()

    def image(self):
        """Copy the files as they are, mid-transaction or not."""
        self.files += 1
        for end in ("", "-wal"):
            if os.path.exists(f"{self.path}{end}"):
                shutil.copy(f"{self.path}{end}", self.folder / f"{self.files}.db{end}")

    def move_to_image(self):
        self.ledger.close()
        self.path = self.folder / f"{self.files}.db"
        self.attach(PrivacyLedger(self.path, epsilon=None))
        self.ledger.verify(self.noted)

    @rule()
    def verified(self):
        """Every head that was noted is still part of the history."""
        self.ledger.verify(self.noted)
        self.noted = self.ledger.head()

    @invariant()
    def the_books_agree(self):
        assert self.ledger.spent_per_individual().tolist() == [float(paid) for paid in self.model.paid]
        assert self.ledger.spent().epsilon == max(self.model.paid)
        assert self.ledger.remaining() == float(BUDGET - max(self.model.paid))
        assert self.ledger.n_answers == len(self.model.answers)
        assert self.ledger.n_refused() == self.model.refusals
        assert max(self.model.paid) <= BUDGET
        for terms in self.scorers:
            limit, own = self.model.accounts[terms[4]]
            assert self.ledger.spent(terms[4]).epsilon == max(own) <= limit


@pytest.mark.parametrize("look", ["spent", "remaining", "spent_per_individual", "history", "verify", "head"])
@pytest.mark.parametrize("account", [False, True])
def test_looking_at_an_empty_ledger_changes_nothing(look, account):
    ledger = PrivacyLedger(epsilon=1.0)
    if account:
        number = ledger.open_account("early", 1)
        ledger.spent(number)
    getattr(ledger, look)()
    auditor = FairnessAuditor(GROUPS, ids=IDS, ledger=ledger)
    auditor.answer(MODELS[0], epsilon=0.75)
    with pytest.raises(PrivacyBudgetExceeded):
        auditor.answer(MODELS[1], epsilon=0.75)
    assert ledger.spent().epsilon == Fraction(3, 4)
    ledger.close()


PROFILE = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def run(profile):
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(ScorerAndLedger, settings=profile)


def test_random_histories():
    run(PROFILE)


@pytest.mark.parametrize("fault", ["no refusal", "forgotten answers", "only the first pays", "nobody pays"])
def test_planted_faults_are_noticed(monkeypatch, fault):
    """A model that agreed with anything would prove nothing."""
    if fault == "no refusal":
        monkeypatch.setattr(Standing, "refusal", lambda *arguments: None)
    elif fault == "forgotten answers":
        calls = count()
        monkeypatch.setattr(PrivacyLedger, "digest", lambda self, *parts: b"%d" % next(calls))
    elif fault == "only the first pays":
        charged = FairnessAuditor._charged

        def fewer(self, batch, positions):
            members = charged(self, batch, positions)
            return members if members is None else members[:1]

        monkeypatch.setattr(FairnessAuditor, "_charged", fewer)
    else:
        reserve = ledger_module.reserve

        def free(connection, entry):
            return reserve(connection, replace(entry, loss=(0, 0, 0, 0)))

        monkeypatch.setattr(ledger_module, "reserve", free)
    once = settings(PROFILE, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises((AssertionError, LedgerIntegrityError, pytest.fail.Exception)):
        run(once)


@pytest.mark.statistical
def test_long_random_histories():
    run(settings(PROFILE, max_examples=200, stateful_step_count=60))
