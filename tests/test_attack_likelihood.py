"""Noise-aware decoders: against quadrature, closed forms, calibration and the ceiling of privacy."""

import warnings

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.metrics import roc_auc_score

from sklearn_fairleak import FairnessAuditor, NotPrivateWarning
from sklearn_fairleak.attack import AttributeRevealAttack, NoiseLaw
from sklearn_fairleak.attack.decoders import predict_gaps, solve_l1
from sklearn_fairleak.attack.likelihood import decode_noisy, decode_unknown, likely_law
from sklearn_fairleak.attack.posteriors import (
    NoisySystem,
    _channel,
    posterior_gamp,
    posterior_irls,
    posterior_lmmse,
)
from sklearn_fairleak.attack.released import read_answers
from sklearn_fairleak.mechanisms import NoisySums
from sklearn_fairleak.metrics import leakage_score


def population(n, n_disadvantaged, m, seed):
    rng = np.random.default_rng(seed)
    attributes = np.ones(n, dtype=int)
    attributes[rng.choice(n, n_disadvantaged, replace=False)] = 0
    H = rng.integers(0, 2, (m, n)).astype(float)
    return H, attributes, predict_gaps(H, attributes), rng


DENSITIES = {
    "laplace": lambda x, s: stats.laplace.pdf(x, scale=s),
    "gaussian": lambda x, s: stats.norm.pdf(x, scale=s),
    "cauchy": lambda x, s: stats.cauchy.pdf(x, scale=s),
    "uniform": lambda x, s: stats.uniform.pdf(x, -s, 2 * s),
}


@pytest.mark.parametrize("kind", sorted(DENSITIES))
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_channel_is_the_score_of_the_law_blurred_by_a_gaussian(kind, scale):
    tau = 0.7
    errors = np.array([-3.0, -0.4, 0.1, 1.5])

    def log_blurred(error):
        def integrand(z):
            return DENSITIES[kind](error - z, scale) * stats.norm.pdf(z, scale=np.sqrt(tau))

        points = sorted({error - scale, error, error + scale})
        value, _ = integrate.quad(integrand, -12, 12, points=points, limit=400, epsabs=1e-13, epsrel=1e-12)
        return np.log(value)

    step = 1e-4
    # The score is in the prediction, so it is minus the derivative in the error.
    expected = [-(log_blurred(e + step) - log_blurred(e - step)) / (2 * step) for e in errors]
    g, slope = _channel(NoiseLaw(kind, scale), errors, tau)
    np.testing.assert_allclose(g, expected, rtol=2e-4, atol=1e-5)
    ahead, _ = _channel(NoiseLaw(kind, scale), errors + step, tau)
    behind, _ = _channel(NoiseLaw(kind, scale), errors - step, tau)
    assert slope == pytest.approx(np.mean(ahead - behind) / (2 * step), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "cauchy", "uniform"])
def test_samples_follow_the_law(kind):
    law = NoiseLaw(kind, 0.7)
    sample = law.sample(20_000, np.random.default_rng(0))
    frozen = {
        "laplace": stats.laplace(scale=0.7),
        "gaussian": stats.norm(scale=0.7),
        "cauchy": stats.cauchy(scale=0.7),
        "uniform": stats.uniform(-0.7, 1.4),
    }[kind]
    assert stats.kstest(sample, frozen.cdf).pvalue > 1e-3
    if kind != "cauchy":
        assert law.variance == pytest.approx(frozen.var())


@pytest.mark.parametrize(("kind", "scale"), [("poisson", 1.0), ("laplace", 0.0), ("laplace", np.nan)])
def test_impossible_laws_are_refused(kind, scale):
    with pytest.raises(ValueError, match=r"must be"):
        NoiseLaw(kind, scale)


def test_lmmse_of_one_repeated_question_is_the_gaussian_posterior():
    # Accepting half the people, m times, with Gaussian noise: one observation of the number of them.
    n, m, sigma = 40, 30, 0.05
    H = np.zeros((m, n))
    H[:, :20] = 1.0
    a = (np.arange(n) % 4 > 0).astype(int)
    system = NoisySystem.build(H, predict_gaps(H, a), NoiseLaw("gaussian", sigma), 0.75, None)
    c = 1 / 10 + 1 / 30
    # x = p + r v (y - r.p) / (r.r v + s^2/m) for r = +-1/2, v = p (1-p), and r.a = 0 in truth.
    v = 0.75 * 0.25
    gain = v * 0.25 / (n * 0.25 * v + (sigma / c) ** 2 / m)
    variance = v * (1 - gain)
    evidence = gain * (0.75 - 0.5) / variance
    np.testing.assert_allclose(posterior_lmmse(system).log_odds, np.log(3) + evidence, rtol=1e-6)


@pytest.mark.parametrize("decode", [posterior_gamp, posterior_irls, posterior_lmmse])
@pytest.mark.parametrize("kind", ["laplace", "gaussian", "cauchy", "uniform"])
def test_decoders_find_everyone_when_there_is_hardly_any_noise(decode, kind):
    H, a, answers, rng = population(60, 20, 90, 0)
    law = NoiseLaw(kind, 1e-4)
    score = decode(NoisySystem.build(H, answers + law.sample(90, rng), law, 40 / 60, None)).probabilities
    assert roc_auc_score(a, score) == 1.0


@pytest.mark.parametrize("decode", [posterior_gamp, posterior_irls, posterior_lmmse])
def test_posteriors_stay_with_the_prior_when_there_is_only_noise(decode):
    H, _, answers, rng = population(80, 20, 50, 1)
    law = NoiseLaw("laplace", 1e4)
    prior = rng.uniform(0.1, 0.9, 80)
    system = NoisySystem.build(H, answers + law.sample(50, rng), law, 0.75, prior)
    np.testing.assert_allclose(decode(system).probabilities, prior, atol=1e-3)


@pytest.mark.statistical
def test_gamp_posteriors_are_calibrated():
    scores, truth = [], []
    for seed in range(20):
        H, a, answers, rng = population(400, 100, 200, seed)
        law = NoiseLaw("laplace", 0.04)
        found = decode_noisy(H, answers + law.sample(200, rng), law, sizes=(100, 300), decoder="gamp")
        scores.append(found.scores)
        truth.append(a)
    scores, truth = np.concatenate(scores), np.concatenate(truth)
    for low in (0.3, 0.5, 0.7, 0.9):
        inside = (scores >= low) & (scores < low + 0.1)
        assert inside.sum() > 50
        spread = np.sqrt(0.25 / inside.sum())
        assert abs(truth[inside].mean() - scores[inside].mean()) < 4 * spread + 0.02


@pytest.mark.parametrize("decode", ["gamp", "irls", "lmmse", "auto"])
@pytest.mark.parametrize("target", [0, 5])
def test_repeated_answers_about_one_person_follow_bayes_rule(decode, target):
    # One target alone is accepted, m times: the answers are 1/8 or -1/4 plus noise.
    n, m, scale = 12, 40, 0.3
    a = np.array([0] + [1] * 8 + [0] * 3)
    H = np.zeros((m, n))
    H[:, target] = 1.0
    rng = np.random.default_rng(3)
    answers = predict_gaps(H, a) + rng.normal(scale=scale, size=m)
    law = NoiseLaw("gaussian", scale)
    log_odds = np.log(8 / 4) + np.sum((answers + 1 / 4) ** 2 - (answers - 1 / 8) ** 2) / (2 * scale**2)
    found = decode_noisy(H, answers, law, sizes=(4, 8), decoder=decode)
    assert found.scores[target] == pytest.approx(1 / (1 + np.exp(-log_odds)), abs=0.12)
    assert (found.scores[target] > 0.5) == a[target]


def test_randomized_response_is_read_at_its_own_odds():
    epsilon, n = 1.0, 300
    law = NoiseLaw("randomized_response", epsilon)
    p = law.flip_probability
    rng = np.random.default_rng(0)
    a = (rng.random(n) < 0.8).astype(int)
    copy = np.where(rng.random(n) < p, 1 - a, a)
    H = rng.random((200, n))
    size = (copy.sum() - p * n) / (1 - 2 * p)
    inside = (H @ copy - p * H.sum(axis=1)) / (1 - 2 * p)
    answers = inside / size - (H.sum(axis=1) - inside) / (n - size)
    found = decode_noisy(H, answers, law)
    assert found.verified
    assert found.attributes.tolist() == copy.tolist()
    q = size / n
    ones = q * (1 - p) / (q * (1 - p) + (1 - q) * p)
    np.testing.assert_allclose(found.scores[copy == 1], ones, rtol=1e-9)
    assert leakage_score(a, found.attributes) < np.exp(epsilon) / (1 + np.exp(epsilon)) + 0.06


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomized_response_gives_itself_and_its_epsilon_away(epsilon):
    n = 120
    p = NoiseLaw("randomized_response", epsilon).flip_probability
    rng = np.random.default_rng(3)
    a = (rng.random(n) < 0.5).astype(int)
    copy = np.where(rng.random(n) < p, 1 - a, a)
    H = rng.random((n, n))
    size = (copy.sum() - p * n) / (1 - 2 * p)
    inside = (H @ copy - p * H.sum(axis=1)) / (1 - 2 * p)
    answers = inside / size - (H.sum(axis=1) - inside) / (n - size)
    found = decode_unknown(H, answers)
    assert found.attributes.tolist() == copy.tolist()
    (told,) = [message for message in found.messages if "epsilon" in message]
    assert float(told.split("=")[1]) == pytest.approx(epsilon, rel=0.01)


def test_exact_and_rounded_answers_are_recognised_where_noise_was_expected():
    H, a, answers, _ = population(100, 30, 110, 2)
    assert decode_unknown(H, answers).exact
    rounded = decode_unknown(H, np.round(answers, 3), sizes=(30, 70))
    assert any("rounded to 3 decimals" in message for message in rounded.messages)
    assert leakage_score(a, rounded.attributes) == 1.0


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["noisy_sums", "randomized_response", "laplace", "attribute_conceal"])
def test_nobody_guesses_better_than_epsilon_allows(mechanism):
    # Accepting one person again and again is the sharpest question; its answer is worth exp(epsilon) at most.
    epsilon, n, trials = 1.0, 12, 150
    a = np.array([0, 1] * (n // 2))
    right = 0
    for trial in range(trials):
        truth = np.roll(a, trial % 2)
        auditor = FairnessAuditor(truth, ids=np.arange(n) + 1, epsilon=epsilon)
        scorer = auditor.scorer(mechanism=mechanism, absolute=False, n_queries=1)
        h = np.zeros(n)
        h[0] = 1.0
        answer = float(scorer.answer(h))
        # Person 0 is advantaged with prior 1/2; the sign is the likelihood ratio test of symmetric laws.
        right += (answer > 0) == (truth[0] == 1)
    ceiling = np.exp(epsilon) / (1 + np.exp(epsilon))
    assert right / trials < ceiling + 4 * np.sqrt(0.25 / trials)
    assert right / trials > 0.45


def test_unknown_noise_is_guessed_to_its_order_of_magnitude():
    H, a, answers, rng = population(200, 60, 300, 5)
    law = NoiseLaw("laplace", 0.02)
    noisy = answers + law.sample(300, rng)
    guess = likely_law(H, noisy, sizes=(60, 140))
    assert 0.004 < guess.scale < 0.1
    attack = AttributeRevealAttack("noisy", group_sizes=(60, 140)).fit(H, noisy)
    assert attack.leakage(a) > 0.9


@pytest.mark.parametrize("auc", [0.7, 0.9])
def test_prior_knowledge_adds_to_answers(auc):
    n, m = 300, 60
    gain = []
    for seed in range(5):
        H, a, answers, rng = population(n, 90, m, seed)
        law = NoiseLaw("gaussian", 0.03)
        noisy = answers + law.sample(m, rng)
        distance = np.sqrt(2) * stats.norm.ppf(auc)
        evidence = rng.normal(size=n) + distance * a
        odds = 0.7 / 0.3 * np.exp(distance * evidence - distance**2 / 2)
        prior = odds / (1 + odds)
        alone = decode_noisy(H, noisy, law, sizes=(90, 210))
        fused = decode_noisy(H, noisy, law, sizes=(90, 210), prior=prior)
        assert roc_auc_score(a, fused.scores) > roc_auc_score(a, prior)
        gain.append(roc_auc_score(a, fused.scores) - roc_auc_score(a, alone.scores))
    assert np.mean(gain) > 0.02


def test_rounded_answers_are_a_uniform_law():
    H, a, answers, _ = population(200, 40, 160, 7)
    found = decode_noisy(H, np.round(answers, 2), NoiseLaw.rounded(2), sizes=(40, 160))
    assert leakage_score(a, found.attributes) > 0.97


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["laplace", "cauchy", "gaussian"])
@pytest.mark.parametrize("epsilon", [10.0, 500.0])
def test_knowing_the_noise_is_never_worse_than_the_papers_program(kind, epsilon):
    n, m, few, runs = 200, 60, 21, 3
    smooth = 6.0 * (1.0 / few + 1.0 / (n - few + 1))
    everywhere = 0.5 + 1.0 / (n - 1)
    scale = {"laplace": everywhere, "cauchy": smooth, "gaussian": 4.8 * everywhere}[kind] / epsilon
    law = NoiseLaw(kind, scale)
    ahead = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        a = np.ones(n, dtype=int)
        a[rng.choice(n, few, replace=False)] = 0
        H = np.clip(rng.beta(0.8, 1.6, n) + rng.uniform(-0.1, 0.1, (m, n)), 0.0, 1.0)
        answers = predict_gaps(H, a) + law.sample(m, rng)
        found = decode_noisy(H, answers, law, sizes=(few, n - few))
        theirs = solve_l1(H, answers, (few, n - few), time_limit=30.0)
        ahead.append(
            [
                roc_auc_score(a, found.scores) - roc_auc_score(a, theirs),
                leakage_score(a, found.attributes) - leakage_score(a, (theirs > 0.5).astype(int)),
            ]
        )
    # Where noise hides everything both toss coins; this is the standard error of the difference of their AUCs.
    scatter = np.sqrt(2.0 * (n + 1) / (12.0 * few * (n - few)) / runs)
    assert np.all(np.mean(ahead, axis=0) > -3.0 * scatter)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["noisy_sums", "randomized_response", "laplace", "attribute_conceal"])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_decoder_guesses_nobody_better_than_epsilon_allows(mechanism, epsilon):
    n, few, runs = 120, 40, 6
    copied = mechanism == "randomized_response"
    # As many answers as people tell all of a private copy.
    m, law = (130, NoiseLaw("randomized_response", epsilon)) if copied else (40, None)
    leakage = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        a = np.ones(n, dtype=int)
        a[rng.choice(n, few, replace=False)] = 0
        H = rng.integers(0, 2, (m, n)).astype(float)
        auditor = FairnessAuditor(a, ids=np.arange(n) + 1, epsilon=epsilon)
        answers = np.asarray(auditor.scorer(mechanism=mechanism, absolute=False).answer_many(H).values)
        attack = AttributeRevealAttack("noisy", noise_law=law, group_sizes=(few, n - few)).fit(H, answers)
        leakage.append(attack.leakage(a))
    ceiling = np.exp(epsilon) / (1.0 + np.exp(epsilon))
    assert np.mean(leakage) < ceiling + 4.0 * np.sqrt(0.25 * n / (2.0 * few * (n - few)) / runs)
    if copied:
        # The copy is read at exactly its odds: the attack reaches what the mechanism allows.
        assert np.mean(leakage) > ceiling - 0.08


class TestReleases:
    """What an auditor publishes about its noise is used, and stated as it is."""

    @staticmethod
    def asked(mechanism, n_models=60, epsilon=200.0, seed=0):
        rng = np.random.default_rng(5)
        a = (np.arange(400) >= 60).astype(int)
        H = 0.5 + 0.4 * (rng.random((n_models, 400)) - 0.5) + 0.2 * rng.random(400)
        with warnings.catch_warnings():
            # Weak protection, so that errors are small and the law of the noise shows.
            warnings.filterwarnings("ignore", message="epsilon=.* barely protects")
            warnings.simplefilter("ignore", NotPrivateWarning)
            auditor = FairnessAuditor(a, ids=np.arange(400), epsilon=epsilon)
            scorer = auditor.scorer(mechanism=mechanism, absolute=False, random_state=seed)
            return a, H, scorer.answer_many(H)

    @pytest.mark.parametrize("design", ["residuals", "sums"])
    @pytest.mark.parametrize("sizes", [None, (60, 340)])
    def test_errors_have_the_stated_scale(self, design, sizes):
        spreads, commons, stated = [], [], []
        for seed in range(16):
            a, H, answers = self.asked(NoisySums(design=design), epsilon=2000.0, seed=seed)
            gaps, law = read_answers(answers, sizes)
            error = gaps - predict_gaps(H, a)
            spreads.append(error.std())
            commons.append(error.mean())
            stated.append((law.variance, law.shared))
        variance, shared = np.mean(stated, axis=0)
        # A second moment of Laplace noise from 960 errors is known to about 7 %, one from 16 to some 50 %.
        assert np.mean(np.square(spreads)) == pytest.approx(variance, rel=0.25)
        assert np.mean(np.square(commons)) < 2.5 * (shared**2 + variance / 60)

    def test_known_sizes_sharpen_the_common_part(self):
        _, _, answers = self.asked(NoisySums(design="sums"))
        assert read_answers(answers, (60, 340))[1].shared < 1e-9 < read_answers(answers)[1].shared

    def test_one_question_and_its_counts(self):
        errors, stated = [], []
        for seed in range(120):
            a, H, answers = self.asked(NoisySums(design="pair"), n_models=1, epsilon=5.0, seed=seed)
            gaps, law = read_answers(answers, (60, 340))
            errors.append(float((gaps - predict_gaps(H, a))[0]))
            stated.append(law.variance + law.shared**2)
        assert np.mean(np.square(errors)) == pytest.approx(np.mean(stated), rel=0.4)

    def test_other_mechanisms(self):
        assert read_answers(self.asked("laplace")[2])[1].kind == "laplace"
        law = read_answers(self.asked("randomized_response", epsilon=3.0)[2])[1]
        assert law.kind == "randomized_response"
        assert law.scale == pytest.approx(3.0, abs=1e-6)
        assert read_answers(self.asked("attribute_conceal")[2])[1] is None

    def test_the_attack_takes_answers_whole(self):
        a, H, answers = self.asked("noisy_sums", n_models=200, epsilon=4000.0)
        attack = AttributeRevealAttack("noisy", group_sizes=(60, 340)).fit(H, answers)
        assert attack.leakage(a) > 0.95

    def test_a_given_law_is_obeyed(self):
        _, H, answers = self.asked("noisy_sums")
        law = NoiseLaw("laplace", 0.01)
        whole = AttributeRevealAttack("noisy", noise_law=law, group_sizes=(60, 340)).fit(H, answers)
        plain = AttributeRevealAttack("noisy", noise_law=law, group_sizes=(60, 340)).fit(H, answers.values)
        np.testing.assert_array_equal(whole.scores_, plain.scores_)

    @pytest.mark.parametrize("shared", [-1.0, np.inf, np.nan])
    def test_bad_shared_noise(self, shared):
        with pytest.raises(ValueError, match="shared must be a finite number"):
            NoiseLaw("laplace", 1.0, shared)
