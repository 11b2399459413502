"""Mutants of the source: small mistakes, each of which the tests named beside it must notice.

    python tests/mutation.py [NAME ...] [--jobs N]

A copy of the tree takes the mistakes, one at a time. A line for each says which test noticed it, or that none did.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("rmopt", "problems", "tests")
# A mistake may make a loop endless.
SECONDS = 600


class Mutant(NamedTuple):
    """A mistake: the text that stands once in a file, what takes its place, and tests, parted by spaces."""

    name: str
    guards: str
    file: str
    text: str
    mistake: str
    tests: str

    def flaw(self, root: Path = ROOT) -> str | None:
        """Return why the mistake cannot be made, or None."""
        count = (root / self.file).read_text("utf-8").count(self.text)
        if count != 1:
            return f"{self.name}: {self.text!r} stands {count} times in {self.file}"
        for test in self.tests.split():
            file, _, names = test.partition("::")
            source = (root / "tests" / file).read_text("utf-8")
            for name in re.sub(r"\[.*", "", names).split("::") if names else ():
                if not re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE):
                    return f"{self.name}: there is no {name} in tests/{file}"
        return None


CERTIFICATE, IDENTITY, KEPT = "rmopt/solvers/certificate.py", "rmopt/core/identity.py", "rmopt/solvers/checkpoint.py"
REGION, LENGTHS, TURNS = (f"rmopt/solvers/{name}.py" for name in ("trust_regions", "step_lengths", "directions"))
FIXED_RANK, LIFTED, ROWS = "rmopt/retractions/fixed_rank.py", "rmopt/kernels/lifted.py", "rmopt/kernels/row_column.py"
LOG_DET, BOOST = "rmopt/kernels/log_det.py", "problems/metric/baselines.py"
RANKED, RANKING, PLACES = "problems/ranking/cost.py", "problems/ranking/kernels.py", "problems/ranking/measures.py"
LOOPS, EMBEDDING, BENDS = "problems/kernels.py", "problems/coembedding/cost.py", "problems/coembedding/kernels.py"
COMPLETION, COLUMNS = "problems/subspace/cost.py", "problems/subspace/kernels.py"
NEVER = "test_rank_incremental.py::test_the_certified_gap_is_never_below_the_true_one"
LARGE = "test_rank_incremental.py::test_bounds_of_large_matrices_hold_where_points_are_not_stationary"
SMALL = "test_rank_incremental.py::test_bounds_of_small_matrices_allow_for_rounding"
LOWER = "test_convex_costs.py::test_lower_bounds_are_attained"
OTHER = "test_checkpoints.py::test_a_checkpoint_of_another_cost_is_refused"
BOUNDARY = "test_descent.py::test_steps_that_the_region_holds_back_are_as_long_as_its_radius"
RADIUS = "test_descent.py::test_the_radius_follows_what_steps_bring"
OPTIMUM = "test_descent.py::test_the_optimum_is_reached"
EXACT = "test_directions.py::test_quadratics_end_after_as_many_exact_steps_as_they_have_curvatures"
WOLFE = "test_directions.py::test_steps_of_strong_wolfe_meet_both_conditions"
HESSIANS = "test_laws.py::test_laws"
THEOREM_3, THEOREM_6 = (
    "test_loreta.py::test_the_algorithms_agree_with_theorem_3_and_the_retraction",
    "test_psd.py::test_algorithm_5_and_the_retraction_are_theorem_6",
)
ALGORITHM_4 = "test_loreta.py::test_compiled_engine_follows_algorithm_4"
ALGORITHM_5 = "test_psd.py::test_compiled_engine_follows_algorithm_5"
COMET = "test_laws.py::test_laws[positive-definite-7]"
SKLEARN_RANKS = "test_ranking.py::test_scores_are_scikit_learns_where_both_rank"
PLACES_BY_HAND = "test_ranking.py::test_measures_of_the_first_places_follow_their_formulas"
ALGORITHM_1 = "test_gossip.py::test_the_engine_is_algorithm_one"
TERMS = "test_gossip.py::test_the_terms_add_up_to_the_cost"
DERIVATIVES = "test_subspace.py::test_gradient_and_hessian_also_where_the_basis_is_not_orthonormal"
INNER = "test_subspace.py::test_the_inner_solution_minimises_the_printed_objective"
EQUATION_13 = "test_coembedding.py::test_equation_13_as_it_stands"
EQUATION_14 = "test_tags.py::test_equation_14_as_it_stands"
BENT = "test_convex_costs.py::test_factor_derivatives_by_finite_differences"

# name, what it guards, file, text, mistake, tests that must notice it
MUTANTS = [Mutant(*row) for row in (
    ("lanczos-residual", "proof", CERTIFICATE, "+ residual", "", LARGE),
    ("lanczos-tie", "proof", CERTIFICATE, ", known) + tie", ", known)", LARGE),
    ("lanczos-known", "proof", CERTIFICATE, "residual, known)", "residual, -np.inf)", LARGE),
    ("dense-rounding", "proof", CERTIFICATE, "float(values[0]) + rounding", "float(values[0])", SMALL),
    ("gradient-sign", "proof", CERTIFICATE, "lambda V: -local.apply(V)", "lambda V: local.apply(V)", NEVER),
    ("complementarity", "proof", CERTIFICATE, "bound = self.complementarity + ", "bound = ", NEVER),
    ("trace-of-optimum", "proof", CERTIFICATE, "max(0.0, excess) / cost.trace_weight", "trace", NEVER),
    ("excess", "proof", CERTIFICATE, "excess = local.value - floor", "excess = local.value",
     "test_certificates_of_strangers.py"),
    ("relative-gap", "proof", CERTIFICATE, "self.gap / self.excess", "self.gap / abs(self.objective)",
     "test_certificates_of_strangers.py"),
    ("contradiction", "proof", CERTIFICATE, "if excess < cost.trace_weight * trace", "if excess < 0.0 * trace",
     "test_certificates_of_strangers.py"),
    ("bound-of-sum", "proof", "rmopt/costs/convex.py", "float(sum(bounds))", "float(max(bounds))", LOWER),
    ("bound-of-labels", "proof", EMBEDDING, "np.log(both[both > 0]).sum()", "np.log(both[both > 0] + 1).sum()", LOWER),
    ("bound-of-links", "proof", EMBEDDING, "self.linked.sum() * np.log(2.0)", "self.n_pairs * np.log(2.0)", LOWER),
    ("bound-of-one-vs-rest", "proof", EMBEDDING, "        self.lower_bound = 0.0\n", "\n", LOWER),

    ("average-precision-ties", "measure", LOOPS, "relevant[first - 1] == value", "relevant[first - 1] > value",
     "test_evaluation.py::TestAveragePrecision"),
    ("average-precision-ranks", "measure", LOOPS, "ranked[i - 1] >= value", "ranked[i - 1] > value",
     "test_evaluation.py::TestAveragePrecision"),
    ("precision-denominator", "measure", LOOPS, "relevant_tied / tied) / ks[at]", "relevant_tied / tied) / taken",
     "test_evaluation.py::TestPrecisionAtK"),
    ("precision-ties", "measure", LOOPS, "(taken - above) * relevant_tied / tied", "min(taken - above, relevant_tied)",
     "test_evaluation.py::TestPrecisionAtK"),
    ("query-is-ranked", "measure", "problems/evaluation.py", "average_precision(scores[i, 1:]",
     "average_precision(scores[i]", "test_evaluation.py::TestAveragePrecision"),
    ("rows-to-rank", "measure", PLACES, "(count > 0) & (count < truth.shape[1])", "count > 0", SKLEARN_RANKS),
    ("precision-of-labels", "measure", PLACES, "float(hits[:, :k].mean())", "float(hits[:, :k].any(axis=1).mean())",
     PLACES_BY_HAND),
    ("ndcg-discount", "measure", PLACES, "np.arange(2, hits.shape[1] + 2)", "np.arange(3, hits.shape[1] + 3)",
     PLACES_BY_HAND),
    ("ndcg-ideal", "measure", PLACES, "best[np.minimum(counts, k)]", "best[counts]", PLACES_BY_HAND),
    ("propensity", "measure", PLACES, "np.log(table.shape[0]) - 1.0", "np.log(table.shape[0])", PLACES_BY_HAND),
    ("propensity-best", "measure", PLACES, "np.sort(truth * -weights, axis=1)",
     "np.sort(np.broadcast_to(-weights, truth.shape), axis=1)", PLACES_BY_HAND),
    ("hamming", "measure", "problems/coembedding/methods.py", "1.0 - float(hamming_loss", "float(hamming_loss",
     "test_multilabel_baselines.py::test_measures_by_hand"),
    ("micro-f1", "measure", "problems/coembedding/methods.py", 'average="micro"', 'average="samples"',
     "test_multilabel_baselines.py::test_measures_by_hand"),
    ("f1-threshold", "measure", "problems/thresholds.py", "float(expected.max()) / 2.0", "float(expected.max())",
     "test_multilabel_baselines.py::test_the_threshold_for_f1_is_the_best_of_all"),
    ("f1-expected", "measure", "problems/thresholds.py", "+ ordered.sum())", "+ len(ordered))",
     "test_multilabel_baselines.py::test_the_threshold_for_f1_is_the_best_of_all"),
    ("rmse", "measure", "problems/subspace/completer.py", "np.sqrt(np.mean((gaps / unit) ** 2))",
     "np.mean(np.abs(gaps / unit))", "test_factor_completion.py::test_held_out_bundles_are_scored_by_their_names"),
    ("rmse-of-agents", "measure", "problems/subspace/methods.py", "return float(np.sqrt(total / count))",
     "return float(total / count) + 0.0",
     "test_subspace.py::test_synthetic_entries_are_those_of_a_matrix_of_the_rank_wanted"),
    ("nmse", "measure", "problems/subspace/multitask_experiment.py", "error / among.var()", "error / among.std()",
     "test_multitask.py::test_errors_of_tasks_with_one_test_row_have_no_variance_of_their_own"),

    ("sparse-columns", "resumption", IDENTITY, "(rows.data, rows.indices, rows.indptr)", "(rows.data, rows.indptr)",
     OTHER),
    ("sparse-rows", "resumption", IDENTITY, "(rows.data, rows.indices, rows.indptr)", "(rows.data, rows.indices)",
     OTHER),
    ("keyword-defaults", "resumption", IDENTITY, ", self.digest(function.__kwdefaults__)", ",", OTHER),
    ("defaults", "resumption", IDENTITY, "self.digest(function.__defaults__), ", "", OTHER),
    ("dtype-of-data", "resumption", IDENTITY, "repr(thing.dtype), thing.shape", "thing.shape", OTHER),
    ("shape-of-data", "resumption", IDENTITY, "repr(thing.dtype), thing.shape", "repr(thing.dtype)", OTHER),
    ("another-run", "resumption", KEPT, "    _refuse_another(path, saved, identity)\n", "", OTHER),
    ("content", "resumption", KEPT, "fingerprint([told, sorted(arrays.items())])", "fingerprint(told)",
     "test_checkpoints.py::test_files_of_other_formats_and_changed_ones_are_refused"),
    ("generations", "resumption", KEPT, "sorted(self._steps())[:-2]", "sorted(self._steps())[:-1]",
     "test_gossip.py::test_a_shared_checkpoint_keeps_two_generations_and_goes_back_to_the_common_one"),
    ("common-generation", "resumption", KEPT, "self.world.least(max(self._steps(), default=-1))",
     "max(self._steps(), default=-1)",
     "test_gossip.py::test_a_shared_checkpoint_keeps_two_generations_and_goes_back_to_the_common_one"),
    ("streams", "resumption", "rmopt/core/streams.py", "[seed, stream, *more]", "[seed, *more]",
     "test_solvers.py::test_streams_of_random_numbers_are_apart"),
    ("stream-places", "resumption", "rmopt/core/streams.py", "[seed, stream, *more]", "[seed, stream]",
     "test_solvers.py::test_streams_of_random_numbers_are_apart"),
    ("rounds-after-resuming", "resumption", "rmopt/solvers/rank_incremental.py", "work.first_step + state.steps",
     "state.steps", "test_rank_incremental.py::test_a_run_that_was_cut_off_ends_with_the_same_bits"),
    ("products-after-resuming", "resumption", REGION, "(4.0 * state.memory[0], 0)", "(state.memory[0], 0)",
     "test_descent.py::test_a_refused_step_is_tried_again_without_new_products"),
    ("uniform-terms", "resumption", "rmopt/solvers/samplers.py", "rng.integers(self.n_terms,",
     "rng.integers(self.n_terms - 1,", "test_solvers.py::test_samplers"),

    ("second-order-left", "formula", FIXED_RANK, "Z1 = point.U @ (S + 0.5 * M - 0.125", "Z1 = point.U @ (S + 0.5 * M - 0.25",
     THEOREM_3),
    ("second-order-right", "formula", FIXED_RANK, "0.125 * R @ R", "0.25 * R @ R", THEOREM_3),
    ("second-order-tail", "formula", FIXED_RANK, "tail = identity - 0.5 * R", "tail = identity + 0.5 * R", THEOREM_3),
    ("second-order-psd", "formula", FIXED_RANK, "VQ = point.Q @ (S + 0.5 * M - 0.125", "VQ = point.Q @ (S + 0.5 * M - 0.25",
     THEOREM_6),
    ("kernel-alpha", "formula", LIFTED, "alpha = -0.5 + 0.375 * s", "alpha = -0.5 + 0.25 * s", ALGORITHM_4),
    ("kernel-orthographic", "formula", LIFTED, "mu = -1.0 / (1.0 + s)", "mu = -1.0 / (1.0 - s)",
     "test_loreta_oracles.py::test_every_way_to_step_walks_the_same_path"),
    ("gram-inverse", "formula", LIFTED, "-edge * scale", "edge * scale", ALGORITHM_4),
    ("kernel-psd-n1-n2", "formula", LIFTED, "= 0.09375 * n2,", "= 0.09375 * n1,", ALGORITHM_5),
    ("kernel-psd-f", "formula", LIFTED, "f = 0.5 - 0.125 * s", "f = 0.5 - 0.25 * s", ALGORITHM_5),
    ("algorithm-7-branch", "formula", "rmopt/linalg.py", "if not inside and not level:", "if not inside or not level:",
     "test_loreta_oracles.py::test_algorithm_7_meets_the_moore_penrose_equations"),
    ("ranking-weight", "formula", RANKED, "gradient[best] += violated.size", "gradient[best] += 1",
     "test_ranking.py::test_loss_and_subgradient_by_hand"),
    ("ranking-weight-kernel", "formula", RANKING, "= best, float(found)", "= best, 1.0",
     "test_ranking.py::test_compiled_follows_the_reference"),
    ("warp-weight", "formula", RANKING, "harmonic[n_wrong // tries]", "harmonic[tries]",
     "test_ranking.py::test_compiled_follows_the_reference"),
    ("passive-aggressive", "formula", RANKING, "u[c] -= eta_A * g_square * v[c]", "u[c] -= eta_A * v[c]",
     "test_baselines.py::test_label_passive_aggressive_follows_plain_numpy"),
    ("oasis", "formula", LOOPS, "min(terms.etas[t], loss / steepness)", "loss / steepness",
     "test_baselines.py::test_similarity_baselines_follow_plain_numpy"),
    ("lego", "formula", LOOPS, "4.0 * eta * distance * distance", "2.0 * eta * distance * distance",
     "test_baselines.py::test_lego_solves_its_problem_at_every_pair"),
    ("schur-sign", "formula", ROWS, "(2.0 * schur.b - schur.a * eta)", "(2.0 * schur.b + schur.a * eta)", COMET),
    ("line-search-barrier", "formula", ROWS, "first -= line.alpha * velocity / value",
     "first += line.alpha * velocity / value", COMET),
    ("line-search-corner", "formula", ROWS, "2.0 * eta * line.square + corner * speed", "2.0 * eta * line.square", COMET),
    ("carried-scores", "formula", LOG_DET, "z[at] + eta * b[at] + e * e_weight[at]", "z[at] + eta * b[at]", COMET),
    ("carried-inverse", "formula", LOG_DET, "pending.push(inverse, -schur.D, w)", "pending.push(inverse, schur.D, w)",
     COMET),
    ("shrinking", "formula", LOG_DET, "1.0 - eta * weights.sparsity / sqrt(off)", "1.0 - weights.sparsity / sqrt(off)",
     COMET),
    ("residuals", "formula", LOG_DET, "loss_square = 0.25 * dot(g, g)", "loss_square = dot(g, g)", COMET),
    ("schur-exponential", "formula", "rmopt/retractions/positive_definite.py",
     "rate = 2.0 * (tangent.u[k] - move", "rate = 1.0 * (tangent.u[k] - move",
     "test_positive_definite.py::test_the_schur_exponential_moves_column_and_schur_complement_as_it_says"),
    ("boost-gain", "formula", BOOST, "(place[q] - place[n]) ** 2 - (place", "(place[q] - place[n]) ** 2 - 0.5 * (place",
     "test_metric.py::test_boosting_minimises_its_cost"),
    ("boost-penalty", "formula", BOOST, "moved @ (gain - penalty)", "moved @ gain",
     "test_metric.py::test_boosting_minimises_its_cost"),
    ("boost-weights", "formula", BOOST, "np.exp(scores.min() - scores)", "np.exp(scores - scores.max())",
     "test_metric.py::test_boosting_minimises_its_cost"),
    ("gossip-alpha", "formula", "rmopt/costs/gossip.py", "1.0 / graph.degrees", "1.0 / (graph.degrees + 1.0)",
     f"{ALGORITHM_1} {TERMS}"),
    ("gossip-rho", "formula", "rmopt/solvers/gossip.py", "log(point, other) * self.cost.rho",
     "log(point, other) * (2.0 * self.cost.rho)", ALGORITHM_1),
    ("gossip-preconditioner", "formula", "rmopt/solvers/gossip.py", "weight = max(self.cost.rho,", "weight = max(0.0,",
     ALGORITHM_1),
    ("gossip-consensus", "formula", "rmopt/costs/gossip.py", "fits + 0.5 * self.rho", "fits + self.rho", TERMS),
    ("gossip-log", "formula", "rmopt/manifolds/grassmann.py", "np.arctan2(sines, cosines[wide]) / sines", "1.0",
     "test_grassmann.py::test_logarithms_away_from_the_cut_locus_are_exact"),
    ("gossip-log-nearby", "formula", "rmopt/manifolds/grassmann.py", "np.divide(np.arcsin(sines), sines,",
     "np.divide(sines, sines,", "test_grassmann.py::test_logarithms_away_from_the_cut_locus_are_exact"),
    ("averaging-weights", "formula", "rmopt/costs/graph.py", "1.0 / (1.0 + max(", "1.0 / (2.0 + max(", "test_graph.py"),
    ("lmafit-tracking", "formula", "problems/subspace/baselines.py", "+ renewed - shares", "+ 0.0 * renewed",
     "test_subspace.py::test_d_lmafit_converges_and_gossip_is_ahead_of_it"),
    ("alt-min", "formula", "problems/subspace/baselines.py", "2.0 * lam * np.eye(m)", "lam * np.eye(m)",
     "test_multitask.py::test_alt_min_descends_to_the_convex_optimum"),
    ("multitask-ridge", "formula", COMPLETION, "2.0 * lam * np.eye(r)", "lam * np.eye(r)",
     "test_multitask.py::test_multitask_is_equation_14_and_not_15"),
    ("completion-ridge", "formula", COLUMNS, "+ 2.0 * lam * gram[a, b]", "+ lam * gram[a, b]", INNER),
    ("completion-value", "formula", COLUMNS, "total += lam * (length - shrink)", "total += lam * length", INNER),
    ("completion-gradient", "formula", COMPLETION, "2.0 * self.lam * (point @ solved.curvature)",
     "self.lam * (point @ solved.curvature)", DERIVATIVES),
    ("completion-hessian", "optimum", COMPLETION, "2.0 * self.lam * (E @ solved.curvature",
     "self.lam * (E @ solved.curvature", DERIVATIVES),
    ("completion-rates", "optimum", COLUMNS, "x[a] -= 2.0 * lam * gram_rate", "x[a] -= lam * gram_rate", DERIVATIVES),
    ("multitask-hessian", "optimum", COMPLETION, "solved.gaps[:, None] * rates)", "0.0 * rates)", DERIVATIVES),
    ("hinge-of-pairs", "formula", EMBEDDING, "np.clip(0.5 * (2.0 + z)", "np.clip(0.5 * (1.0 + z)",
     "test_coembedding.py::test_the_smooth_hinge_is_smooth_and_the_printed_one_jumps"),
    ("hinge-of-labels", "formula", BENDS, "0.5 * (2.0 + z)", "0.5 * (1.0 + z)", EQUATION_13),
    ("softmax-of-labels", "formula", BENDS, "total += top + np.log(mass)", "total += np.log(mass)", EQUATION_13),
    ("link-margins", "formula", EMBEDDING, "(0.5 * (t + s) - d)", "(t - d)", "test_links.py::test_link_losses_by_hand"),
    ("tags-of-a-post", "formula", BENDS, "            odds[mine] = 0.0\n            # So", "            # So", EQUATION_14),
    ("tag-curvature", "optimum", BENDS, "x / ((1.0 + x) * (1.0 + x))", "x / (1.0 + x)", EQUATION_14),
    ("label-curvature", "optimum", BENDS, "slope * (slope * moved[j] - mean)", "slope * slope * moved[j]", BENT),
    ("factor-hessian", "optimum", "rmopt/costs/embedded.py", "+ cost.spread(self.slopes, moved))", ")", BENT),
    ("closed-form", "formula", EMBEDDING, "beta / (2.0 * s**4)", "beta / s**4",
     "test_rank_incremental.py::test_the_closed_form_is_a_minimum"),
    ("label-votes", "formula", "problems/coembedding/baselines.py", "votes[:, j] += 1.0 - first", "votes[:, j] += first",
     "test_multilabel_baselines.py::test_calibrated_label_ranking_by_hand"),
    ("virtual-votes", "formula", "problems/coembedding/baselines.py", "(1.0 - relevant).sum(axis=1)",
     "relevant.sum(axis=1)", "test_multilabel_baselines.py::test_calibrated_label_ranking_by_hand"),
    ("gibbs-noise", "formula", "problems/subspace/bayesian.py", "len(self.by_columns.known[2]) / 2.0",
     "len(self.by_columns.known[2])", "test_factor_completion.py::test_a_chain_that_draws_its_data_too_keeps_the_prior"),
    ("gibbs-mean", "formula", "problems/subspace/bayesian.py", "(MEAN_WEIGHT * n / weight)", "MEAN_WEIGHT",
     "test_factor_completion.py::test_a_chain_that_draws_its_data_too_keeps_the_prior"),

    ("boundary-sign", "optimum", REGION, "(-sp + (sp * sp", "(sp + (sp * sp", BOUNDARY),
    ("boundary-turn", "optimum", REGION, "beta * (sp + alpha * pp)", "beta * sp", BOUNDARY),
    ("boundary-size", "optimum", REGION, "rz + beta * beta * pp", "rz", BOUNDARY),
    ("boundary-kept", "optimum", REGION, "pp * (radius * radius - ss)", "pp * (radius * radius)", BOUNDARY),
    ("radius-shrinks", "optimum", REGION, "ratio < 0.25:", "ratio < 0.0:", RADIUS),
    ("radius-grows", "optimum", REGION, "max(bound, longer) if ratio > 0.75 else bound", "bound", RADIUS),
    ("radius-stays", "optimum", REGION, "if ratio > 0.75 else bound", "if ratio > 0.25 else bound", RADIUS),
    ("promise", "optimum", REGION, "+ inner(point, residual, step))", "+ inner(point, gradient, step))", RADIUS),
    ("acceptance", "optimum", REGION, "ratio >= ACCEPTED", "ratio >= -ACCEPTED", RADIUS),
    ("cubic-weight", "optimum", REGION, "- weight / sigma)", "- weight)",
     "test_descent.py::test_steps_of_cubics_minimise_their_model"),
    ("wolfe-slope", "optimum", LENGTHS, "if abs(slope) <= flat:", "if slope <= flat:", WOLFE),
    ("wolfe-flatness", "optimum", LENGTHS, "flat = -self.flatness * curve.slope", "flat = -curve.slope", WOLFE),
    ("sufficient-fall", "optimum", LENGTHS, "trial.cost <= reference + promised", "trial.cost <= reference", WOLFE),
    ("lbfgs-recursion", "optimum", TURNS, "share - inner(point, y, q) / sy", "share",
     EXACT),
    ("lbfgs-scale", "optimum", TURNS, "scale = sy / yz", "scale = 1.0", f"{EXACT} {OPTIMUM}"),
    ("conjugacy", "optimum", TURNS, "max(0.0, move.inner(z, y) / dy)", "max(0.0, move.inner(z, y) / -dy)",
     EXACT),
    ("sphere-hessian", "optimum", "rmopt/manifolds/sphere.py", "bend = tangent_vector *", "bend = 0.5 * tangent_vector *",
     HESSIANS + "[sphere-9]"),
    ("stiefel-hessian", "optimum", "rmopt/manifolds/stiefel.py", "- tangent_vector @ bend", "", HESSIANS + "[stiefel-9-3]"),
    ("grassmann-hessian", "optimum", "rmopt/manifolds/grassmann.py", "- tangent_vector @ turn", "",
     HESSIANS + "[grassmann-9-3]"),
    ("fixed-rank-hessian", "optimum", "rmopt/manifolds/fixed_rank_embedded.py", "flat.Up + np.linalg.solve(point.S, bend",
     "flat.Up + 0.0 * np.linalg.solve(point.S, bend",
     "test_fixed_rank.py::test_hessian_is_the_derivative_of_the_gradient_field"),
    ("psd-hessian", "optimum", "rmopt/manifolds/psd_fixed_rank.py", "flat.Qp + np.linalg", "flat.Qp - np.linalg",
     HESSIANS + "[psd-9-3]"),
    ("affine-hessian", "optimum", "rmopt/manifolds/symmetric_positive_definite.py", "W @ H @ W + xi @ G @ W",
     "W @ H @ W", HESSIANS + "[symmetricpositivedefinite-4-affine-invariant]"),
    ("log-det-hessian", "optimum", "rmopt/costs/log_det.py", "self.alpha * symmetric(inverse @ direction @ inverse)",
     "self.alpha * symmetric(direction)", COMET),
)]  # fmt: skip

def run(
    tree: Path, tests: str, cache: str | None = None, timeout: float | None = SECONDS
) -> tuple[int | None, str]:
    """Return the exit status of tests in a copy, None where they did not end, and what pytest printed."""
    settings = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    settings |= {"PYTHONPATH": str(tree)} | ({} if cache is None else {"NUMBA_CACHE_DIR": cache})
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-rfE", "-p", "no:cacheprovider"]
    command += [f"tests/{test}" for test in dict.fromkeys(tests.split())]
    try:
        done = subprocess.run(
            command, cwd=tree, env=settings, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def verdict(mutant: Mutant, tree: Path) -> tuple[str, str]:
    """Return "killed", "survived" or "error", and the test that noticed the mistake, or what went wrong."""
    file = tree / mutant.file
    source, dates = file.read_text("utf-8"), file.stat()
    file.write_text(source.replace(mutant.text, mutant.mistake), "utf-8")
    try:
        # Numba does not compile a function again where one that it calls has changed.
        with tempfile.TemporaryDirectory() as cache:
            status, told = run(tree, mutant.tests, cache if "njit" in source else None)
    finally:
        file.write_text(source, "utf-8")
        os.utime(file, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    if status is None:
        return "killed", f"no end within {SECONDS} s"
    if status == 0:
        return "survived", mutant.tests
    found = re.search(r"^FAILED tests/(\S+)", told, re.MULTILINE)
    return ("killed", found[1]) if status == 1 and found else ("error", told)


def judge(chosen: list[Mutant], jobs: int) -> int:
    """Print a verdict on each mutant and return the exit status."""
    counts = dict.fromkeys(("killed", "survived", "error"), 0)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        first = Path(folder, "0")
        for part in COPIED:
            shutil.copytree(ROOT / part, first / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy2(ROOT / "pyproject.toml", first)
        print("the tests, where nothing is wrong", flush=True)
        status, told = run(first, " ".join(one.tests for one in chosen), timeout=None)
        if status != 0:
            print(told)
            return 2
        free: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            # With what numba has compiled.
            free.put(shutil.copytree(first, first.with_name(str(job))) if job else first)

        def judged(mutant: Mutant) -> str:
            tree, start = free.get(), time.monotonic()
            word, what = verdict(mutant, tree)
            free.put(tree)
            counts[word] += 1
            return f"{word} {mutant.name} ({mutant.guards}, {time.monotonic() - start:.0f} s): {what}"

        for place, line in enumerate(as_completed([pool.submit(judged, one) for one in chosen]), 1):
            print(f"[{place}/{len(chosen)}] {line.result()}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 2 if counts["error"] else 1 if counts["survived"] else 0


def main() -> int:
    """Run the mutants that the command line names, or all of them."""
    kinds = sorted({one.guards for one in MUTANTS})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of a mutant, or of a kind: {', '.join(kinds)}")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many run at a time (1)")
    given = parser.parse_args()
    for name in given.names:
        if name not in {*kinds, *(one.name for one in MUTANTS)}:
            parser.error(f"no mutant is called {name}; there are {', '.join(one.name for one in MUTANTS)}.")
    if given.jobs < 1:
        parser.error(f"--jobs = {given.jobs} must be at least 1.")
    chosen = [one for one in MUTANTS if not given.names or {one.name, one.guards} & {*given.names}]
    if flaws := [flaw for one in chosen if (flaw := one.flaw())]:
        print(*flaws, sep="\n")
        return 2
    return judge(chosen, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
