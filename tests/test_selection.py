"""Private choices: exact laws by enumeration, one charge, right models chosen."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_fairleak import FairnessAuditor, NotPrivateWarning, PrivacyBudgetExceeded, UnknownIndividuals
from sklearn_fairleak.choices import (
    FirstWithin,
    GapWatch,
    LeastGap,
    WithinTest,
    excesses,
    gap_numerators,
    permute_and_flip,
)
from sklearn_fairleak.groups import Groups
from sklearn_fairleak.noise import SecureNoise, SeededNoise
from sklearn_fairleak.queries import make_queries
from sklearn_fairleak.selection import first_within, passes_threshold, select_least_biased

pytestmark = pytest.mark.filterwarnings("ignore:epsilon=.* barely protects")

N = 300
IDS = [f"p{i}" for i in range(N)]
RACE = pd.Series(np.where(np.arange(N) % 3 == 0, "b", "w"), index=IDS)
FAIR = (np.arange(N) // 3 % 2).astype(float)
BIASED = (RACE == "w").to_numpy().astype(float)
HALF = np.where(np.arange(N) % 2 == 0, FAIR, BIASED)


def groups(codes):
    return Groups(np.asarray(codes, dtype=np.int64), ("b", "w"))


def all_groups(n):
    return [np.array(a) for a in itertools.product((0, 1), repeat=n)]


def neighbours(a):
    for j in range(len(a)):
        b = a.copy()
        b[j] ^= 1
        yield b


def gap(h, a, w):
    return np.average(h[a == 1], weights=w[a == 1]) - np.average(h[a == 0], weights=w[a == 0])


def flip_law(badness, sensitivities, epsilon):
    """Return the law of noisy-max with exponential noise, by integration over the winner's noise."""
    scales = [
        (own + max(s for k, s in enumerate(sensitivities) if k != i)) / epsilon
        for i, own in enumerate(sensitivities)
    ]
    z = (np.arange(20_000) + 0.5) / 500  # in scales
    law = []
    for i, scale in enumerate(scales):
        others = [
            -np.expm1(-np.maximum(0, z * scale - badness[i] + badness[k]) / scales[k])
            for k in range(len(badness))
            if k != i
        ]
        law.append((np.exp(-z) * np.prod(others, axis=0)).sum() / 500)
    return np.array(law)


def permutation_law(badness, sensitivity, epsilon):
    """Return the law of permute-and-flip as published, over all orders and all coins."""
    heads = [math.exp(-epsilon * (bad - min(badness)) / (2 * sensitivity)) for bad in badness]
    law = np.zeros(len(badness))
    for order in itertools.permutations(range(len(badness))):
        tails = 1.0
        for k in order:
            law[k] += tails * heads[k]
            tails *= 1 - heads[k]
    return law / math.factorial(len(badness))


values = st.sampled_from([0.0, 1.0, 0.25, 0.3, 0.9])
weights = st.sampled_from([0.0, 1.0, 0.5, 3.0])


class TestSums:
    """The whole numbers tell gaps apart exactly, and their sensitivity is a true and tight bound."""

    @settings(deadline=None, max_examples=60)
    @given(st.data(), st.integers(3, 6), st.booleans())
    def test_one_individual_moves_no_sum_by_more_than_the_bound(self, data, n, weighted):
        H = np.array(data.draw(st.lists(st.lists(values, min_size=n, max_size=n), min_size=1, max_size=3)))
        w = np.array(data.draw(st.lists(weights, min_size=n, max_size=n))) if weighted else np.ones(n)
        if not w.sum():
            w[0] = 1.0
        batch = make_queries("statistical_parity", H, sample_weight=w if weighted else None)
        design, totals, weight, bounds = gap_numerators(batch.queries[0])
        rows, row = design.values.astype(np.int64), design.weight_row().astype(np.int64)
        for v, total, bound in zip(rows, totals, bounds, strict=True):
            moved = np.abs(weight * v - total * row).max()
            assert moved <= bound
            assert bound <= moved if not weighted else bound <= moved + 2 + 1e-9 * moved

    @settings(deadline=None, max_examples=60)
    @given(st.data(), st.integers(3, 6), st.booleans(), st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    def test_excess_has_the_sign_of_gap_minus_limit_and_moves_by_at_most_one(self, data, n, weighted, limit):
        h = np.array(data.draw(st.lists(values, min_size=n, max_size=n)))
        w = np.array(data.draw(st.lists(weights, min_size=n, max_size=n))) if weighted else np.ones(n)
        if not w.sum():
            w[0] = 1.0
        batch = make_queries("statistical_parity", h, sample_weight=w if weighted else None)

        def excess(a):
            return excesses(batch, groups(a), Fraction(limit))[0]

        for a in all_groups(n):
            x = excess(a)
            assert all(abs(x - excess(b)) <= 1 for b in neighbours(a))
            if w[a == 1].sum() and w[a == 0].sum():
                margin = abs(gap(h, a, w)) - limit
                if abs(margin) > 1e-5:  # values are rounded to 2^-20
                    assert (x > 0) == (margin > 0)
            else:
                assert x <= 0  # an empty group has no gap

    def test_threshold_bound_is_nearly_attained(self):
        # Accepting a quarter of 60 people: leaving a group of four moves both terms the same way.
        h, a = np.repeat([1.0, 0.0], [15, 45]), np.repeat([1, 0], [4, 56])
        b = a.copy()
        b[0] = 0
        batch = make_queries("statistical_parity", h)
        x, y = (excesses(batch, groups(codes), Fraction(3, 10))[0] for codes in (a, b))
        # |lambda| falls by 3/4, and N1 N0/n by 53/60; the bound is 3/4 + (3/10)(59/60).
        fall = Fraction(3, 4) - Fraction(3, 10) * Fraction(4 * 56 - 3 * 57, 60)
        assert x - y == fall / (Fraction(3, 4) + Fraction(3, 10) * Fraction(59, 60))
        b, c = np.repeat([0, 1, 0], [15, 4, 41]), np.repeat([0, 1, 0], [14, 5, 41])
        x, y = (excesses(batch, groups(codes), Fraction(3, 10))[0] for codes in (b, c))
        assert Fraction(9, 10) < x - y <= 1

    def test_equalized_odds_excess_is_the_larger_of_both_rates(self):
        y, limit = np.array([0, 0, 0, 1, 1, 1]), Fraction(1, 10)
        h = np.array([1.0, 0, 0, 1, 1, 0])
        both = make_queries("equalized_odds", h, y)
        parts = [make_queries(name, h, y) for name in ("equal_opportunity", "false_positive_rate_parity")]
        for a in all_groups(6):
            x = excesses(both, groups(a), limit)[0]
            assert x == max(excesses(part, groups(a), limit)[0] for part in parts)
            assert all(abs(x - excesses(both, groups(b), limit)[0]) <= 1 for b in neighbours(a))


class TestGuarantee:
    """Exact laws of the outputs on neighbouring data differ by a factor of at most exp(epsilon)."""

    @pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
    @pytest.mark.parametrize("metric", ["statistical_parity", "equal_opportunity"])
    def test_permute_and_flip(self, epsilon, metric):
        n = 5
        y = np.array([1, 1, 1, 1, 0])
        H = np.array([[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [0.25, 0.5, 1, 0.75, 0], [0.5] * 5])
        batch = make_queries(metric, H, y)
        query = batch.queries[0]
        design, totals, weight, bounds = gap_numerators(query)

        def law(a):
            members = query.restrict(a) == 1
            inside = int(design.weight_row()[members].sum())
            sums = design.values[:, members].sum(axis=1)
            badness = [abs(weight * int(s) - t * inside) for s, t in zip(sums, totals, strict=True)]
            return flip_law(badness, bounds, epsilon)

        losses = [np.abs(np.log(law(a)) - np.log(law(b))).max() for a in all_groups(n) for b in neighbours(a)]
        assert max(losses) <= epsilon * (1 + 1e-4)
        assert max(losses) >= 0.4 * epsilon

    def test_equal_sensitivities_give_the_published_mechanism(self):
        badness = [3, 0, 5, 1]
        assert np.allclose(flip_law(badness, [2] * 4, 1.5), permutation_law(badness, 2, 1.5), atol=1e-5)

    @pytest.mark.statistical
    @pytest.mark.parametrize("sensitivities", [[2, 2, 2, 2], [1, 4, 2, 3]])
    def test_permute_and_flip_has_the_stated_law(self, sensitivities):
        badness, epsilon = [3, 0, 5, 1], Fraction(3, 2)
        noise = SeededNoise(1, b"law")
        drawn = np.bincount(
            [permute_and_flip(badness, sensitivities, epsilon, noise) for _ in range(4000)], minlength=4
        )
        expected = 4000 * flip_law(badness, sensitivities, float(epsilon))
        assert ((drawn - expected) ** 2 / expected).sum() < 16.3  # chi square, 3 degrees of freedom, 0.1 %

    @pytest.mark.statistical
    def test_threshold_test_has_the_stated_law(self):
        batch = make_queries("statistical_parity", np.array([1.0, 1, 0, 0, 1, 0]))
        a, choice = np.array([1, 1, 0, 0, 0, 1]), WithinTest(Fraction(1, 2), Fraction(1, 5))
        x = float(excesses(batch, groups(a), choice.max_gap)[0])
        expected = 0.5 * math.exp(-0.5 * x)
        noise = SeededNoise(2, b"law")
        passed = np.mean([choice.release(batch, groups(a), noise)["passed"][0] for _ in range(4000)])
        assert x > 0
        assert passed == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 4000))

    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_sparse_vector_on_neighbouring_excesses(self, epsilon):
        """Integrate over the noise of the limit, on its own grid, for every sequence of shifts."""
        share = 0.387
        threshold, rate = share * epsilon, (1 - share) * epsilon / 2
        centre = math.log(2) * (1 / rate - 1 / threshold)
        noise = np.arange(0, 60 / threshold, 1 / 64)
        density = np.exp(-threshold * noise)
        density /= density.sum()

        def law(x):
            """Return the probabilities of a first pass at 0, 1, …, and of none."""
            out, alive = [], np.ones_like(noise)
            for excess in x:
                passes = np.exp(-rate * np.maximum(0, excess + noise + centre))
                out.append((density * alive * passes).sum())
                alive = alive * (1 - passes)
            return np.array([*out, (density * alive).sum()])

        start = np.array([1.5, 0.0, -1.0, 2.0])
        base = law(start)
        for moves in itertools.product((-1, 0, 1), repeat=4):
            assert np.abs(np.log(law(start + np.array(moves))) - np.log(base)).max() <= epsilon + 1e-6

    @pytest.mark.statistical
    def test_sparse_vector_has_the_stated_law(self):
        x, epsilon, runs = Fraction(1, 2), Fraction(1), 3000
        rate, threshold = float(epsilon * Fraction(613, 2000)), 0.387
        noise = SeededNoise(3, b"law")
        passed = np.mean([GapWatch(epsilon, noise).passes(x) for _ in range(runs)])
        grid = (np.arange(200_000) + 0.5) * 4e-4
        z = np.maximum(0, 0.5 + grid + math.log(2) * (1 / rate - 1 / threshold))
        expected = (threshold * np.exp(-threshold * grid) * np.exp(-rate * z)).sum() * 4e-4
        assert passed == pytest.approx(expected, abs=4 * math.sqrt(0.25 / runs))

    def test_a_watch_is_over_after_a_pass(self):
        watch = GapWatch(Fraction(1), SecureNoise())
        assert watch.passes(Fraction(-1000))
        assert watch.is_over
        with pytest.raises(RuntimeError, match="new epsilon"):
            watch.passes(Fraction(-1000))


class TestOneCharge:
    def test_choosing_among_fifty_costs_epsilon_once(self):
        auditor = FairnessAuditor(RACE, epsilon=1.0)
        H = np.random.default_rng(0).random((50, N))
        choice = auditor.select_least_biased(H, epsilon=0.25)
        assert choice.epsilon == 0.25
        assert auditor.ledger.remaining() == 0.75
        assert auditor.report()["n_answers_"] == 1

    @pytest.mark.parametrize("ask", ["select", "test", "first"])
    def test_the_same_choice_is_made_once(self, ask):
        auditor, H = FairnessAuditor(RACE, epsilon=1.0), np.random.default_rng(0).random((5, N))

        def choose():
            if ask == "select":
                return auditor.select_least_biased(H)
            return (auditor.passes_threshold if ask == "test" else auditor.first_within)(H, 0.05)

        first, again = choose(), choose()
        assert (first.index, first.passed) == (again.index, again.passed)
        assert (first.replayed, again.replayed) == (False, True)
        with pytest.raises(PrivacyBudgetExceeded):
            auditor.select_least_biased(1 - H)

    def test_a_limit_moved_a_little_is_another_question(self):
        auditor = FairnessAuditor(RACE, epsilon=1.0)
        auditor.passes_threshold(FAIR, 0.1)
        with pytest.raises(PrivacyBudgetExceeded):
            auditor.passes_threshold(FAIR, 0.1000001)

    def test_only_people_of_the_metric_pay(self):
        auditor, y = FairnessAuditor(RACE, epsilon=1.0), np.arange(N) % 2
        auditor.select_least_biased([FAIR, BIASED], y, metric="equal_opportunity")
        auditor.select_least_biased([FAIR, BIASED], y, metric="false_positive_rate_parity")
        assert auditor.ledger.remaining() == 0

    def test_a_stream_is_charged_once_and_read_until_the_first_pass(self):
        auditor = FairnessAuditor(RACE, epsilon=50.0, ledger=None)
        read = []

        def stream():
            for number in range(6):
                read.append(number)
                yield BIASED if number < 3 else FAIR

        found = auditor.first_within(stream(), 0.3, epsilon=25.0)
        assert found.index == 3
        assert read == [0, 1, 2, 3]
        assert auditor.ledger.remaining() == 25.0
        again = auditor.first_within(iter([BIASED] * 4), 0.3, epsilon=25.0)
        assert again.index is None
        assert auditor.ledger.remaining() == 0.0
        with pytest.raises(ValueError, match="No model was chosen"):
            int(again)

    def test_a_stream_of_ratios_pays_for_one_private_copy(self):
        auditor = FairnessAuditor(RACE, epsilon=20.0)
        found = auditor.first_within(
            iter([BIASED, FAIR]), 0.5, metric="demographic_parity_ratio", epsilon=20.0
        )
        assert found.index == 1
        assert auditor.ledger.remaining() == 0.0


class TestRightAnswers:
    """With a large epsilon the choice is the exact one."""

    @pytest.mark.parametrize("metric", ["statistical_parity", "accuracy_parity", "bounded_loss_parity"])
    def test_least_biased(self, metric):
        y = np.zeros(N, dtype=int)
        H = [BIASED, HALF, FAIR]
        chosen = select_least_biased(H, y, sensitive_features=RACE, metric=metric, epsilon=60.0)
        assert int(chosen) == 2
        assert chosen.mechanism == "permute_and_flip"

    @pytest.mark.parametrize("metric", ["equalized_odds", "demographic_parity_ratio", "predictive_parity"])
    def test_metrics_of_several_sums(self, metric):
        y = np.arange(N) // 6 % 2
        models = {"equalized_odds": [BIASED, FAIR], "demographic_parity_ratio": [BIASED, FAIR]}
        H = models.get(metric, [np.where(RACE == "w", y, 1 - y), np.where(np.arange(N) % 5, y, 1 - y)])
        assert int(select_least_biased(H, y, sensitive_features=RACE, metric=metric, epsilon=60.0)) == 1

    def test_three_groups(self):
        race = np.array(["a", "b", "c"])[np.arange(N) % 3]
        H = [(race == "c").astype(float), FAIR]
        auditor = FairnessAuditor(race, ids=IDS, groups=["a", "b", "c"], epsilon=180.0)
        assert int(auditor.select_least_biased(H, epsilon=60.0)) == 1
        assert auditor.first_within(H, 0.3, epsilon=60.0).index == 1
        assert auditor.passes_threshold(np.array(H), 0.3, epsilon=60.0).passed == (False, True)

    def test_penalties_are_weighed_against_gaps(self):
        gap_of_half = abs(HALF[RACE == "w"].mean() - HALF[RACE == "b"].mean())

        def chosen(penalty):
            return int(
                select_least_biased(
                    [HALF, FAIR],
                    sensitive_features=RACE,
                    epsilon=100.0,
                    penalties=[0.0, penalty],
                    minority_share=1 / 3,
                )
            )

        assert chosen(gap_of_half - 0.05) == 1
        assert chosen(gap_of_half + 0.05) == 0

    @pytest.mark.parametrize(("limit", "expected"), [(0.1, False), (0.4, True)])
    def test_threshold(self, limit, expected):
        # HALF follows BIASED for half of the people: its gap is near 0.25 + 0.5 * noise-free share.
        true = abs(HALF[RACE == "w"].mean() - HALF[RACE == "b"].mean())
        limit = true - 0.1 if not expected else true + 0.1
        assert bool(passes_threshold(HALF, limit, sensitive_features=RACE, epsilon=60.0)) is expected

    def test_bounds_scale_the_limit(self):
        salary = 100.0 * BIASED
        far = passes_threshold(salary, 80.0, sensitive_features=RACE, bounds=(0, 100), epsilon=60.0)
        near = passes_threshold(salary / 4, 80.0, sensitive_features=RACE, bounds=(0, 100), epsilon=60.0)
        assert (bool(far), bool(near)) == (False, True)

    def test_first_within_skips_failures(self):
        found = first_within([BIASED, HALF, FAIR, FAIR], 0.05, sensitive_features=RACE, epsilon=100.0)
        assert found.index == 2
        assert bool(found)

    def test_frames_and_series_are_matched_by_index(self):
        auditor = FairnessAuditor(RACE, epsilon=120.0)
        frame = pd.DataFrame({"biased": BIASED, "fair": FAIR}, index=IDS).sample(frac=1, random_state=0)
        assert int(auditor.select_least_biased(frame, epsilon=60.0)) == 1
        shuffled = pd.Series(BIASED, index=IDS).sample(frac=1, random_state=1)
        assert not auditor.passes_threshold(shuffled, 0.5, epsilon=60.0)


class TestBadInput:
    @pytest.mark.parametrize(
        ("ask", "message"),
        [
            (lambda a: a.select_least_biased(FAIR), "shape"),
            (lambda a: a.select_least_biased([FAIR, FAIR[:-1]]), "as many predictions"),
            (lambda a: a.select_least_biased(np.zeros((0, N))), "shape"),
            (lambda a: a.select_least_biased([FAIR, FAIR * np.nan]), "NaN|finite"),
            (lambda a: a.select_least_biased([FAIR], epsilon=0), "epsilon"),
            (lambda a: a.select_least_biased([FAIR], penalties=[1, 2]), "penalties"),
            (lambda a: a.select_least_biased([FAIR], penalties=[np.inf]), "penalties"),
            (lambda a: a.select_least_biased([FAIR], minority_share=0.9), "minority_share"),
            (lambda a: a.select_least_biased([FAIR], metric="auc"), "not supported"),
            (lambda a: a.select_least_biased([FAIR], metric="equal_opportunity"), "y_true"),
            (lambda a: a.select_least_biased([FAIR], ledger="x.db"), "belongs to the auditor"),
            (lambda a: a.select_least_biased([FAIR], sensitive_features=RACE), "either"),
            (lambda a: a.passes_threshold(FAIR, -0.1), "max_gap"),
            (lambda a: a.passes_threshold(FAIR, 1.1), "max_gap"),
            (lambda a: a.passes_threshold(FAIR, float("nan")), "max_gap"),
            (lambda a: a.passes_threshold(FAIR, True), "max_gap"),
            (lambda a: a.passes_threshold(FAIR[:5], 0.1), "300 individuals"),
            (lambda a: a.first_within(iter([]), 0.1), "empty"),
            (lambda a: a.first_within(iter([FAIR * 7]), 0.1), r"pos_label|\[0, 1\]"),
        ],
    )
    def test_errors_cost_nothing(self, ask, message):
        auditor = FairnessAuditor(RACE, epsilon=1.0)
        with pytest.raises(ValueError, match=message):
            ask(auditor)
        assert auditor.ledger.remaining() == 1.0

    def test_unknown_ids_cost_nothing(self):
        auditor = FairnessAuditor(RACE, epsilon=1.0)
        with pytest.raises(UnknownIndividuals):
            auditor.select_least_biased([FAIR[:2]], sample_ids=["p0", "nobody"])
        assert auditor.ledger.remaining() == 1.0

    def test_unknown_settings(self):
        with pytest.raises(TypeError, match="mechanism"):
            FairnessAuditor(RACE).select_least_biased([FAIR], mechanism="laplace")

    def test_ten_tenths_fit_a_whole(self):
        auditor = FairnessAuditor(RACE, epsilon=1.0)
        for k in range(10):
            auditor.passes_threshold(FAIR, 0.01 * k, epsilon=0.1)
        assert auditor.ledger.remaining() == pytest.approx(0, abs=1e-12)

    def test_an_iterator_needs_an_auditor(self):
        with pytest.raises(ValueError, match="auditor="):
            first_within(iter([FAIR]), 0.1, sensitive_features=RACE)

    def test_streams_keep_to_their_people(self):
        auditor = FairnessAuditor(RACE, epsilon=60.0)
        series = pd.Series(BIASED, index=IDS)
        with pytest.raises(ValueError, match="same individuals"):
            auditor.first_within(iter([series, series.iloc[::-1]]), 0.1, epsilon=60.0)

    @pytest.mark.parametrize("codes", [np.zeros(N, int), np.ones(N, int), np.arange(N) % 2])
    def test_an_empty_group_decides_nothing_but_the_answer(self, codes):
        race = pd.Series(np.array(["b", "w"])[codes], index=IDS)
        auditor = FairnessAuditor(race, groups=["b", "w"], epsilon=1.0)
        assert auditor.select_least_biased([FAIR, BIASED], epsilon=0.5).index in (0, 1)
        auditor.passes_threshold(FAIR, 0.1, epsilon=0.5)
        assert auditor.ledger.remaining() == 0

    def test_seeds_are_called_not_private(self):
        with pytest.warns(NotPrivateWarning):
            first = select_least_biased([FAIR, HALF], sensitive_features=RACE, random_state=0)
        with pytest.warns(NotPrivateWarning):
            again = select_least_biased([FAIR, HALF], sensitive_features=RACE, random_state=0)
        assert not first.is_private
        assert first.index == again.index

    def test_terms_are_all_in_the_digest(self):
        one = Fraction(1)
        choices = [
            LeastGap(one),
            LeastGap(one, (0.0,)),
            LeastGap(one, None, 0.2),
            LeastGap(one, ratio=True),
            WithinTest(one, one),
            WithinTest(one, one, True),
            WithinTest(one, one / 2),
            FirstWithin(one, one),
            FirstWithin(one / 2, one),
        ]
        assert len({choice.terms() for choice in choices}) == len(choices)


@pytest.mark.statistical
@pytest.mark.parametrize(("n", "minority", "wanted"), [(1000, 104, 0.80), (10_000, 1000, 0.99)])
def test_chosen_model_is_nearly_the_best(n, minority, wanted):
    near = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        a = np.ones(n, dtype=np.int64)
        a[rng.permutation(n)[:minority]] = 0
        x1, x2 = rng.normal(size=n) + 0.8 * a, rng.normal(size=n)
        scores = [w * x1 + math.sqrt(1 - w * w) * x2 for w in rng.uniform(-0.3, 1, 20)]
        H = np.array([s > np.quantile(s, 1 - rng.uniform(0.15, 0.5)) for s in scores], dtype=float)
        gaps = np.abs(H[:, a == 1].mean(axis=1) - H[:, a == 0].mean(axis=1))
        batch, choice = make_queries("statistical_parity", H), LeastGap(Fraction(1))
        for run in range(10):
            noise = SeededNoise(run, f"{seed}".encode())
            chosen = choice.release(batch, groups(a), noise)["index"]
            near.append(gaps[chosen] <= gaps.min() + 0.02)
    assert np.mean(near) >= wanted
