"""Mutants of the source: small mistakes, each of which the tests named beside it must notice.

    python tests/mutation.py [NAME ...] [--jobs N]

A copy of the tree takes the mistakes, one at a time. A line for each says which test noticed it, or that none did.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("rmopt", "problems", "tests")
# A mistake may make a loop endless: then look, and choose another one.
SECONDS = 600


def test_file(name: str) -> Path:
    """Return the test file of a name, whichever folder it is in."""
    return next((ROOT / "tests").rglob(name))


class Mutant(NamedTuple):
    """A mistake: the text that stands once in a file, what takes its place, and tests, parted by spaces."""

    name: str
    guards: str
    file: str
    tests: str
    text: str
    mistake: str

    def flaw(self) -> str | None:
        """Return why the mistake cannot be made, or None."""
        count = (ROOT / self.file).read_text("utf-8").count(self.text)
        if count != 1:
            return f"{self.name}: {self.text!r} stands {count} times in {self.file}"
        for test in self.tests.split():
            file, _, names = test.partition("::")
            source = test_file(file).read_text("utf-8")
            for name in re.sub(r"\[.*", "", names).split("::") if names else ():
                if not re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE):
                    return f"{self.name}: there is no {name} in tests/{file}"
        return None


# What a mistake endangers, the file, the tests that must notice; and names, texts, what takes their place.
TABLE = (
    ("proof", "rmopt/solvers/certified/certificate.py",
     "test_rank_incremental.py::test_bounds_of_large_matrices_hold_where_points_are_not_stationary", (
        ("lanczos-residual", "+ residual, known", ", known"),
        ("lanczos-tie", ", known) + tie", ", known)"),
        ("lanczos-known", "residual, known)", "residual, -np.inf)"),
    )),
    ("proof", "rmopt/solvers/certified/certificate.py",
     "test_rank_incremental.py::test_bounds_of_small_matrices_allow_for_rounding", (
        ("dense-rounding", "float(values[0]) + rounding", "float(values[0])"),
    )),
    ("proof", "rmopt/solvers/certified/certificate.py",
     "test_rank_incremental.py::test_the_certified_gap_is_never_below_the_true_one", (
        ("gradient-sign", "lambda V: -local.apply(V)", "lambda V: local.apply(V)"),
        ("complementarity", "bound = self.complementarity + ", "bound = "),
        ("trace-of-optimum", "max(0.0, excess) / cost.trace_weight", "trace"),
    )),
    ("proof", "rmopt/solvers/certified/certificate.py",
     "test_certificates_of_strangers.py", (
        ("excess", "excess = local.value - floor", "excess = local.value"),
        ("relative-gap", "self.gap / self.excess", "self.gap / abs(self.objective)"),
        ("contradiction", "if excess < cost.trace_weight * trace", "if excess < 0.0 * trace"),
    )),
    ("proof", "rmopt/solvers/certified/certificate.py",
     "test_certificates_of_strangers.py", (
        ("gradient-nearby", "doubt = misfit(", "doubt = None and misfit("),
        ("gradient-along", "agree(errors[:LOOKS]) or ", ""),
        ("convexity", " or off < -1e-6 * most", ""),
    )),
    ("proof", "rmopt/solvers/batch/oracle.py",
     "test_premises.py test_certificates_of_strangers.py", (
        ("premise-norm", "if not abs(length * length - square) <= 0.01 * square < np.inf:", "if False:"),
        ("premise-bends", "if agree(bends):", "if False:"),
        ("premise-slopes", "if agree(slopes) and clear", "if False and clear"),
        ("premise-kinks", "if agree(slopes) and clear[-AGREED]:", "if agree(slopes):"),
        ("premise-goes-on", "if abs(slopes[-1]) * short > 2.0 * noise and", "if False and"),
        ("premise-sharp", "noise <= h * seen if seen", "True if seen"),
        ("premise-agreement", "> 0.8 * max(map(abs, last))", "> 0.0 * max(map(abs, last))"),
        ("premise-quick", "if noise <= h * seen and abs(", "if noise <= h * seen or abs("),
    )),
    ("optimum", "rmopt/solvers/batch/trust_regions.py",
     "test_premises.py", (
        ("saddle-left", "            state = work.first(below[0])\n", "            pass\n"),
        ("saddle-direction", "combined(basis, shares[:, 0])", "combined(basis, shares[:, -1])"),
    )),
    ("optimum", "rmopt/solvers/batch/descent.py",
     "test_premises.py", (
        ("rounding-at-start", "wanted = max(wanted, work.rounding)", "wanted = wanted"),
    )),
    ("proof", "rmopt/costs/convex.py",
     "test_convex_costs.py::test_lower_bounds_are_attained", (
        ("bound-of-sum", "float(sum(bounds))", "float(max(bounds))"),
    )),
    ("proof", "problems/coembedding/cost.py",
     "test_convex_costs.py::test_lower_bounds_are_attained", (
        ("bound-of-labels", "np.log(both[both > 0]).sum()", "np.log(both[both > 0] + 1).sum()"),
        ("bound-of-links", "self.linked.sum() * np.log(2.0)", "len(self.linked) * np.log(2.0)"),
        ("bound-of-one-vs-rest", "        self.lower_bound = 0.0\n", "\n"),
    )),

    ("measure", "problems/kernels.py",
     "test_evaluation.py::TestAveragePrecision", (
        ("average-precision-ties", "- np.searchsorted(relevant, relevant)", "- np.arange(relevant.shape[0])"),
        ("average-precision-ranks",
         "np.searchsorted(ranked, relevant)", 'np.searchsorted(ranked, relevant, side="right") + 1'),
    )),
    ("measure", "problems/kernels.py",
     "test_evaluation.py::TestPrecisionAtK", (
        ("precision-denominator", "relevant_tied / tied) / ks[at]", "relevant_tied / tied) / taken"),
        ("precision-ties", "(taken - above) * relevant_tied / tied", "min(taken - above, relevant_tied)"),
    )),
    ("measure", "problems/kernels.py",
     "test_evaluation.py::TestAveragePrecision", (
        ("query-is-ranked", "others = ranked[i, 1:]", "others = ranked[i]"),
    )),
    ("measure", "problems/ranking/measures.py",
     "test_ranking.py::test_scores_are_scikit_learns_where_both_rank", (
        ("rows-to-rank", "(count > 0) & (count < truth.shape[1])", "count > 0"),
    )),
    ("measure", "problems/ranking/measures.py",
     "test_ranking.py::test_precision_counts_the_first_places", (
        ("precision-of-labels", "float(hits[:, :k].mean())", "float(hits[:, :k].any(axis=1).mean())"),
    )),
    ("measure", "problems/coembedding/experiment.py",
     "test_multilabel_baselines.py::test_measures_by_hand", (
        ("hamming", "1.0 - float(hamming_loss", "float(hamming_loss"),
        ("micro-f1", 'average="micro"', 'average="samples"'),
    )),
    ("measure", "problems/thresholds.py",
     "test_multilabel_baselines.py::test_the_threshold_for_f1_is_the_best_of_all", (
        ("f1-threshold", "float(expected.max()) / 2.0", "float(expected.max())"),
        ("f1-expected", "+ ordered.sum())", "+ len(ordered))"),
    )),
    ("measure", "problems/subspace/completer.py",
     "test_factor_completion.py::test_held_out_bundles_are_scored_by_their_names", (
        ("rmse", "np.sqrt(np.mean(np.ldexp(gaps, -power) ** 2))", "np.mean(np.ldexp(np.abs(gaps), -power))"),
    )),
    ("measure", "problems/subspace/experiment.py",
     "test_multitask.py::test_errors_of_tasks_with_one_test_row_have_no_variance_of_their_own", (
        ("nmse", "error / among.var()", "error / among.std()"),
    )),

    ("resumption", "rmopt/solvers/save.py",
     "test_checkpoints.py::test_another_number_among_the_data_or_another_start_is_another_run", (
        ("witness-near", "NEAR, ROUNDINGS = 1e-10, 1e4", "NEAR, ROUNDINGS = 1e-4, 1e4"),
    )),
    ("resumption", "rmopt/solvers/run.py",
     "test_checkpoints.py::test_another_number_among_the_data_or_another_start_is_another_run", (
        ("witness-of-the-start", "difference(about[\"witness\"],",
         "difference([self.begun, about[\"witness\"][1]],"),
    )),
    ("resumption", "rmopt/solvers/save.py",
     "test_stream_checkpoints.py::test_the_states_of_several_processes_are_one_file", (
        ("another-run", "            _refuse_another(path, about[\"run\"], run | ", "            (path, run | "),
        ("own-state", "if int(process) == world.rank", "if int(process) == 0"),
        ("order-of-memory", "transpose(np.argsort(axes))", "transpose(axes)"),
    )),
    ("resumption", "rmopt/core/streams.py",
     "test_solvers.py::test_streams_of_random_numbers_are_apart", (
        ("streams", "[seed, stream, *more]", "[seed, *more]"),
        ("stream-places", "[seed, stream, *more]", "[seed, stream]"),
    )),
    ("resumption", "rmopt/solvers/certified/rank_incremental.py",
     "test_checkpoints.py::test_the_seed_reaches_the_local_optimiser", (
        ("seeds-of-rounds",
         "state.steps).integers(2**63))\n        if not isinstance",
         "0).integers(2**63))\n        if not isinstance"),
    )),
    ("resumption", "rmopt/solvers/stochastic/samplers.py",
     "test_solvers.py::test_samplers", (
        ("uniform-terms", "rng.integers(self.n_terms,", "rng.integers(self.n_terms - 1,"),
    )),

    ("formula", "rmopt/retractions/fixed_rank.py",
     "test_loreta.py::test_the_algorithms_agree_with_theorem_3_and_the_retraction", (
        ("second-order-left", "Z1 = point.U @ (S + 0.5 * M - 0.125", "Z1 = point.U @ (S + 0.5 * M - 0.25"),
        ("second-order-right", "0.125 * R @ R", "0.25 * R @ R"),
        ("second-order-tail", "tail = identity - 0.5 * R", "tail = identity + 0.5 * R"),
    )),
    ("formula", "rmopt/retractions/fixed_rank.py",
     "test_psd.py::test_algorithm_5_and_the_retraction_are_theorem_6", (
        ("second-order-psd", "VQ = point.Q @ (S + 0.5 * M - 0.125", "VQ = point.Q @ (S + 0.5 * M - 0.25"),
    )),
    ("formula", "rmopt/engines/rules.py",
     "test_stochastic.py::test_in_flat_space_they_are_those_of_the_papers", (
        ("moments-corrected", "keep ** (step + 1)", "keep ** (step + 2)"),
        ("squares-kept", "squares * weights.keep_squares", "squares * 1.0"),
    )),
    ("formula", "rmopt/engines/rules.py",
     "test_stochastic.py::test_reduced_variance_is_unbiased_and_exact_at_a_known_point", (
        ("variance-reduced", "look.gradient(memory.point, terms) - memory.gradient",
         "look.gradient(memory.point, terms)"),
    )),
    ("formula", "rmopt/kernels/meeting.py",
     "test_parallel.py::test_a_row_counts_for_those_who_moved_it", (
        ("mean-of-factors", "1.0 / np.sqrt(moved[r])", "1.0 / moved[r]"),
    )),
    ("formula", "rmopt/kernels/lifted.py",
     "test_loreta.py::test_compiled_engine_follows_algorithm_4", (
        ("kernel-alpha", "alpha = -0.5 + 0.375 * s", "alpha = -0.5 + 0.25 * s"),
        ("gram-inverse", "-edge * scale", "edge * scale"),
    )),
    ("formula", "rmopt/kernels/lifted.py",
     "test_laws.py::test_laws[fixed-rank-9x7-3]", (
        ("kernel-orthographic", "mu = -1.0 / (1.0 + s)", "mu = -1.0 / (1.0 - s)"),
    )),
    ("formula", "rmopt/kernels/lifted.py",
     "test_psd.py::test_compiled_engine_follows_algorithm_5", (
        ("kernel-psd-n1-n2", "= 0.09375 * n2,", "= 0.09375 * n1,"),
        ("kernel-psd-f", "f = 0.5 - 0.125 * s", "f = 0.5 - 0.25 * s"),
    )),
    ("formula", "problems/ranking/cost.py",
     "test_ranking.py::test_loss_and_subgradient_by_hand", (
        ("ranking-weight", "gradient[best] += violated.size", "gradient[best] += 1"),
    )),
    ("formula", "problems/ranking/kernels.py",
     "test_ranking.py::test_compiled_follows_the_reference", (
        ("ranking-weight-kernel", "= best, float(found)", "= best, 1.0"),
        ("warp-weight", "harmonic[n_wrong // tries]", "harmonic[tries]"),
    )),
    ("formula", "problems/ranking/kernels.py",
     "test_baselines.py::test_label_passive_aggressive_follows_plain_numpy", (
        ("passive-aggressive", "u[c] -= eta_A * g_square * v[c]", "u[c] -= eta_A * v[c]"),
    )),
    ("formula", "problems/kernels.py",
     "test_baselines.py::test_similarity_baselines_follow_plain_numpy", (
        ("oasis", "min(terms.etas[t], loss / steepness)", "loss / steepness"),
    )),
    ("formula", "problems/kernels.py",
     "test_baselines.py::test_lego_solves_its_problem_at_every_pair", (
        ("lego", "4.0 * eta * distance * distance", "2.0 * eta * distance * distance"),
    )),
    ("formula", "rmopt/kernels/row_column.py",
     "test_laws.py::test_laws[positive-definite-7]", (
        ("schur-sign", "(2.0 * schur.b - schur.a * eta)", "(2.0 * schur.b + schur.a * eta)"),
        ("line-search-barrier", "first -= line.alpha * velocity / value", "first += line.alpha * velocity / value"),
        ("line-search-corner", "2.0 * eta * line.square + corner * speed", "2.0 * eta * line.square"),
    )),
    ("formula", "rmopt/kernels/log_det.py",
     "test_laws.py::test_laws[positive-definite-7]", (
        ("carried-scores", "z[at] + eta * b[at] + e * e_weight[at]", "z[at] + eta * b[at]"),
    )),
    ("formula", "rmopt/kernels/log_det.py",
     "test_laws.py::test_laws[positive-definite-6]", (
        ("shrinking", "1.0 - eta * weights.sparsity / sqrt(off)", "1.0 - weights.sparsity / sqrt(off)"),
    )),
    ("formula", "rmopt/kernels/log_det.py",
     "test_coordinate_descent.py::test_compiled_steps_follow_the_reference_for_100_steps", (
        ("carried-inverse", "pending.push(inverse, -schur.D, w)", "pending.push(inverse, schur.D, w)"),
        ("residuals", "loss_square = 0.25 * dot(g, g)", "loss_square = dot(g, g)"),
    )),
    ("formula", "rmopt/retractions/positive_definite.py",
     "test_positive_definite.py::test_the_schur_exponential_moves_column_and_schur_complement_as_it_says", (
        ("schur-exponential", "rate = 2.0 * (tangent.u[k] - move", "rate = 1.0 * (tangent.u[k] - move"),
    )),
    ("formula", "problems/metric/baselines.py",
     "test_metric.py::test_boosting_comes_near_the_least_cost", (
        ("boost-gain", "(place[q] - place[n]) ** 2 - (place", "(place[q] - place[n]) ** 2 - 0.5 * (place"),
        ("boost-penalty", "moved @ (gain - penalty)", "moved @ gain"),
        ("boost-weights", "np.exp(scores.min() - scores)", "np.exp(scores - scores.max())"),
    )),
    ("formula", "rmopt/costs/gossip.py",
     "test_gossip.py::test_the_engine_is_algorithm_one", (
        ("gossip-alpha", "1.0 / graph.degrees", "1.0 / (graph.degrees + 1.0)"),
    )),
    ("formula", "rmopt/solvers/gossip/gossip.py",
     "test_gossip.py::test_the_engine_is_algorithm_one", (
        ("gossip-rho", "log(point, other) * self.cost.rho", "log(point, other) * (2.0 * self.cost.rho)"),
        ("gossip-preconditioner", "weight = max(self.cost.rho,", "weight = max(0.0,"),
    )),
    ("formula", "rmopt/costs/gossip.py",
     "test_laws.py::test_laws[gossip-grassmann-multitask]", (
        ("gossip-consensus", "fits + 0.5 * self.rho", "fits + self.rho"),
    )),
    ("formula", "rmopt/manifolds/grassmann.py",
     "test_grassmann.py::test_logarithms_away_from_the_cut_locus_are_exact", (
        ("gossip-log", "2.0 * ns.namespace(sines).asin(sines) / sines", "2.0 * sines / sines"),
        ("gossip-log-halfway", "xp.sqrt(2.0 + 2.0 * cosines)", "xp.sqrt(4.0 * cosines)"),
    )),
    ("formula", "rmopt/costs/graph.py",
     "test_graph.py", (
        ("averaging-weights", "1.0 / (1.0 + np.maximum(", "1.0 / (2.0 + np.maximum("),
    )),
    ("formula", "problems/subspace/baselines.py",
     "test_subspace.py::test_d_lmafit_converges_and_gossip_is_ahead_of_it", (
        ("lmafit-tracking", "+ renewed - shares", "+ 0.0 * renewed"),
    )),
    ("formula", "problems/subspace/baselines.py",
     "test_multitask.py::test_alt_min_descends_to_the_convex_optimum", (
        ("alt-min", "2.0 * lam * np.eye(m)", "lam * np.eye(m)"),
    )),
    ("formula", "problems/subspace/cost.py",
     "test_multitask.py::test_multitask_is_equation_14_and_not_15", (
        ("multitask-ridge", "2.0 * lam * np.eye(r)", "lam * np.eye(r)"),
    )),
    ("formula", "problems/subspace/kernels.py",
     "test_subspace.py::test_the_inner_solution_minimises_its_objective", (
        ("completion-ridge", "+ 2.0 * lam * gram[a, b]", "+ lam * gram[a, b]"),
        ("completion-value", "(length - shrink * (weight != 1.0))", "length"),
        ("completion-all", "shrink * (weight != 1.0)", "shrink"),
    )),
    ("formula", "problems/subspace/cost.py",
     "test_subspace.py::test_gradient_and_hessian_also_where_the_basis_is_not_orthonormal", (
        ("completion-gradient",
         "gradient += 2.0 * self.lam",
         "gradient += self.lam"),
    )),

    ("optimum", "problems/subspace/cost.py",
     "test_subspace.py::test_gradient_and_hessian_also_where_the_basis_is_not_orthonormal", (
        ("completion-hessian", "2.0 * self.lam * (E @ solved.curvature", "self.lam * (E @ solved.curvature"),
        ("multitask-hessian", "solved.gaps[:, None] * rates)", "0.0 * rates)"),
    )),
    ("optimum", "problems/subspace/kernels.py",
     "test_subspace.py::test_gradient_and_hessian_also_where_the_basis_is_not_orthonormal", (
        ("completion-rates", "x[a] -= 2.0 * lam * gram_rate", "x[a] -= lam * gram_rate"),
    )),

    ("formula", "problems/coembedding/cost.py",
     "test_coembedding.py::test_the_smooth_hinge_is_smooth_and_the_printed_one_jumps", (
        ("hinge-of-pairs", "np.clip(0.5 * (2.0 + z)", "np.clip(0.5 * (1.0 + z)"),
    )),
    ("formula", "problems/coembedding/kernels.py",
     "test_coembedding.py::test_equation_13_as_it_stands", (
        ("hinge-of-labels", "0.5 * (2.0 + z)", "0.5 * (1.0 + z)"),
        ("softmax-of-labels", "total += top + np.log(mass)", "total += np.log(mass)"),
    )),
    ("formula", "problems/coembedding/cost.py",
     "test_links.py::test_link_losses_by_hand", (
        ("link-margins", "(0.5 * (t + s) - d)", "(t - d)"),
    )),
    ("formula", "problems/coembedding/kernels.py",
     "test_tags.py::test_equation_14_as_it_stands", (
        ("tags-of-a-post", "        odds[mine] = 0.0\n        # The", "        # The"),
    )),

    ("optimum", "problems/coembedding/kernels.py",
     "test_tags.py::test_equation_14_as_it_stands", (
        ("tag-curvature", "x / ((1.0 + x) * (1.0 + x))", "x / (1.0 + x)"),
    )),
    ("optimum", "problems/coembedding/kernels.py",
     "test_convex_costs.py::test_factor_derivatives_by_finite_differences", (
        ("label-curvature", "slope * (slope * moved[j] - mean)", "slope * slope * moved[j]"),
    )),
    ("optimum", "rmopt/costs/embedded.py",
     "test_convex_costs.py::test_factor_derivatives_by_finite_differences", (
        ("factor-hessian", "+ cost.spread(self.slopes, moved))", ")"),
    )),

    ("formula", "problems/coembedding/cost.py",
     "test_rank_incremental.py::test_the_closed_form_is_a_minimum", (
        ("closed-form", "beta / (2.0 * s**4)", "beta / s**4"),
    )),
    ("formula", "problems/coembedding/baselines.py",
     "test_multilabel_baselines.py::test_calibrated_label_ranking_by_hand", (
        ("label-votes", "votes[:, j] += 1.0 - first", "votes[:, j] += first"),
        ("virtual-votes", "(1.0 - relevant).sum(axis=1)", "relevant.sum(axis=1)"),
    )),
    ("formula", "problems/subspace/bayesian.py",
     "test_factor_completion.py::test_a_chain_that_draws_its_data_too_keeps_the_prior", (
        ("gibbs-noise", "len(self.by_columns.known[2]) / 2.0", "len(self.by_columns.known[2])"),
        ("gibbs-mean", "(MEAN_WEIGHT * n / weight)", "MEAN_WEIGHT"),
    )),

    ("optimum", "rmopt/solvers/batch/trust_regions.py",
     "test_descent.py::test_steps_that_the_region_holds_back_are_as_long_as_its_radius", (
        ("boundary-sign", "(-sp + (sp * sp", "(sp + (sp * sp"),
        ("boundary-turn", "beta * (sp + alpha * pp)", "beta * sp"),
        ("boundary-size", "rz + beta * beta * pp", "rz"),
        ("boundary-kept", "pp * (radius * radius - ss)", "pp * (radius * radius)"),
    )),
    ("optimum", "rmopt/solvers/batch/trust_regions.py",
     "test_descent.py::test_the_radius_follows_what_steps_bring", (
        ("radius-shrinks", "ratio < 0.25:", "ratio < 0.0:"),
        ("radius-grows", "max(bound, longer) if ratio > 0.75 else bound", "bound"),
        ("radius-stays", "if ratio > 0.75 else bound", "if ratio > 0.25 else bound"),
        ("promise", "+ inner(residual, step))", "+ inner(gradient, step))"),
        ("acceptance", "ratio >= ACCEPTED", "ratio >= -ACCEPTED"),
    )),
    ("optimum", "rmopt/solvers/batch/trust_regions.py",
     "test_descent.py::test_steps_of_cubics_minimise_their_model", (
        ("cubic-weight", "- weight / sigma)", "- weight)"),
    )),
    ("optimum", "rmopt/solvers/batch/step_lengths.py",
     "test_directions.py::test_steps_of_strong_wolfe_meet_both_conditions", (
        ("wolfe-slope", "if abs(slope) <= flat:", "if slope <= flat:"),
        ("wolfe-flatness", "flat = -self.flatness * curve.slope", "flat = -curve.slope"),
        ("sufficient-fall", "trial.cost <= reference + promised", "trial.cost <= reference"),
    )),
    ("optimum", "rmopt/solvers/batch/directions.py",
     "test_directions.py::test_quadratics_end_after_as_many_exact_steps_as_they_have_curvatures", (
        ("lbfgs-recursion", "share - inner(y, q) / sy", "share"),
        ("conjugacy", "max(0.0, move.inner(z, y) / dy)", "max(0.0, move.inner(z, y) / -dy)"),
    )),
    ("optimum", "rmopt/solvers/batch/directions.py",
     "test_directions.py::test_quasi_newton_takes_the_unit_of_a_cost_from_its_steps", (
        ("lbfgs-scale", "scale = sy / yz", "scale = 1.0"),
    )),
    ("optimum", "rmopt/manifolds/sphere.py",
     "test_laws.py::test_laws[sphere-9]", (
        ("sphere-hessian", "bend = tangent_vector *", "bend = 0.5 * tangent_vector *"),
    )),
    ("optimum", "rmopt/manifolds/stiefel.py",
     "test_laws.py::test_laws[stiefel-9-3]", (
        ("stiefel-hessian", "- tangent_vector @ bend", ""),
    )),
    ("optimum", "rmopt/manifolds/grassmann.py",
     "test_laws.py::test_laws[grassmann-9-3]", (
        ("grassmann-hessian", "- tangent_vector @ turn", ""),
    )),
    ("optimum", "rmopt/manifolds/fixed_rank_embedded.py",
     "test_fixed_rank.py::test_hessian_is_the_derivative_of_the_gradient_field", (
        ("fixed-rank-hessian",
         "flat.Up + H(solve(point.S, H(bend_left)))",
         "flat.Up"),
    )),
    ("optimum", "rmopt/manifolds/psd_fixed_rank.py",
     "test_laws.py::test_laws[psd-9-3]", (
        ("psd-hessian", "flat.Qp + H(", "flat.Qp - H("),
    )),
    ("optimum", "rmopt/manifolds/symmetric_positive_definite.py",
     "test_laws.py::test_laws[symmetricpositivedefinite-4-affine-invariant]", (
        ("affine-hessian", "W @ H @ W + xi @ G @ W", "W @ H @ W"),
    )),
    ("optimum", "rmopt/costs/log_det.py",
     "test_laws.py::test_laws[positive-definite-7]", (
        ("log-det-hessian",
         "self.alpha * symmetric(inverse @ direction @ inverse)",
         "self.alpha * symmetric(direction)"),
    )),
    ("kinks", "rmopt/costs/proximable.py",
     "test_nonsmooth.py::test_laws_of_terms", (
        ("group-slope", "across * several + along", "across * several - along"),
        ("nuclear-odd", "differ * even + add * odd", "differ * even + differ * odd"),
        ("nuclear-beside", "return xp.reshape(bent + beside + below, z.shape)",
         "return xp.reshape(bent + below, z.shape)"),
    )),
    ("kinks", "rmopt/costs/proximable.py",
     "test_nonsmooth.py::test_the_envelope_is_a_cost_below", (
        ("envelope-square", "value + 0.5 * float", "value + float"),
    )),
    ("kinks", "rmopt/solvers/batch/proximal_gradient.py",
     "test_nonsmooth.py::test_three_traps", (
        ("stationarity-long", "/ min(t, size)", "/ t"),
        ("stationarity-left", "first = (size_of(step) + left) /", "first = size_of(step) /"),
    )),
    ("kinks", "rmopt/solvers/batch/proximal_gradient.py",
     "test_nonsmooth.py::test_sparse_components", (
        ("zeros", "result if work.manifold.check_point(there) else", "result if True else"),
    )),
    ("proof", "rmopt/solvers/certified/relaxation.py",
     "test_relaxations.py", (
        ("trace-gap", "self.eigenvalue * self.trace_bound", "self.eigenvalue"),
        ("trace-turned", "if abs(turned - value) > SAME", "if False and abs(turned - value) > SAME"),
    )),
    ("optimum", "rmopt/manifolds/doubly_stochastic.py",
     "test_doubly_stochastic.py", (
        ("edge-inside", "< -1e-6 * norm)[steep]", "< -1e6 * norm)[steep]"),
        ("stochastic-hessian", "point) + 0.5 * tangent_vector * slopes)", "point) - 0.5 * tangent_vector * slopes)"),
    )),
    ("optimum", "rmopt/manifolds/generalized.py",
     "test_generalized.py", (
        ("generalized-hessian", "point)) - tangent_vector @ bend)", "point)) + tangent_vector @ bend)"),
    )),
    ("optimum", "rmopt/core/tensors.py",
     "test_tensors.py", (
        ("tucker-gram", "U @ (U.T @ D), C @ C.T)", "U @ (U.T @ D), ns.eye(C.shape[0], C))"),
    )),
    ("statistics", "rmopt/manifolds/means.py",
     "test_statistics.py", (
        ("median-here", "share = max(slope - here, 0.0)", "share = slope"),
        ("components-middle", "vector - middle * (1.0 / len(points))", "vector"),
    )),
)  # fmt: skip
MUTANTS = [Mutant(name, *where, *change) for *where, rows in TABLE for name, *change in rows]


def run(tree: Path, tests: str, timeout: float | None = None) -> tuple[int, str]:
    """Return the exit status of tests in a copy, -1 where they did not end, and what pytest printed."""
    # Numba then keeps what it compiled beside the files.
    settings = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    settings["PYTHONPATH"] = str(tree)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-rfE", "-p", "no:cacheprovider"]
    for test in dict.fromkeys(tests.split()):
        file, *names = test.split("::")
        command.append("::".join([str(test_file(file).relative_to(ROOT)), *names]))
    try:
        done = subprocess.run(
            command, cwd=tree, env=settings, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, f"no end within {timeout} s"
    return done.returncode, done.stdout + done.stderr


def forget(tree: Path, file: str) -> None:
    """Remove what numba compiled of a file and of those that may call it, which it would not compile again."""
    sources = {path: path.read_text("utf-8") for path in tree.rglob("*.py")}
    callers = {path: text for path, text in sources.items() if "njit" in text}
    new = {tree / file} & {*callers}
    while new:
        for path in new:
            del callers[path]
            for kept in path.parent.glob(f"__pycache__/{path.stem}.*.nb?"):
                kept.unlink()
        named = [rf"\b{path.parent.name}\b[^)]*\b{path.stem}\b" for path in new]
        new = {path for path, text in callers.items() if re.search("|".join(named), text)}


def judged(mutant: Mutant, whole: Path) -> tuple[str, str]:
    """Return "killed", "survived" or "error", and the test that noticed the mistake, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        tree = shutil.copytree(whole, Path(folder, "tree"))
        forget(tree, mutant.file)
        file = tree / mutant.file
        file.write_text(file.read_text("utf-8").replace(mutant.text, mutant.mistake), "utf-8")
        status, told = run(tree, mutant.tests, SECONDS)
    if status == 0:
        return "survived", mutant.tests
    found = re.search(r"^FAILED tests/(\S+)", told, re.MULTILINE)
    return ("killed", found[1]) if status == 1 and found else ("error", told)


def judge(chosen: list[Mutant], jobs: int) -> int:
    """Print a verdict on each mutant and return the exit status."""
    counts = dict.fromkeys(("killed", "survived", "error"), 0)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        for part in COPIED:
            shutil.copytree(ROOT / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy2(ROOT / "pyproject.toml", folder)
        print("the tests, where nothing is wrong", flush=True)
        status, told = run(Path(folder), " ".join(one.tests for one in chosen))
        if status != 0:
            print(told)
            return 2
        tasks = {pool.submit(judged, one, Path(folder)): one for one in chosen}
        for place, task in enumerate(as_completed(tasks), 1):
            word, what = task.result()
            counts[word] += 1
            one = tasks[task]
            print(f"[{place}/{len(tasks)}] {word} {one.name} ({one.guards}): {what}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 2 if counts["error"] else 1 if counts["survived"] else 0


def main() -> int:
    """Run the mutants that the command line names, or all of them."""
    kinds = sorted({one.guards for one in MUTANTS})
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of a mutant, or of a kind: {', '.join(kinds)}"
    )
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
