"""The cases that compute no gradient, and why."""

from __future__ import annotations

FORWARD_ONLY: dict[str, tuple[str, ...]] = {
    "updates of parameters: nothing is differentiated through them": (
        "adamw",
        "sgd_with_momentum",
        "lion_with_bfloat16_state",
        "adafactor",
        "gradient_clipping_by_norm",
        "scaling_of_tensors_by_address",
        "newton_schulz_step",
        "moving_average_where_flags_are_set",
    ),
    "the choice of the next token": (
        "greedy_choice",
        "penalties_of_repetition",
        "softmax_with_temperatures",
        "sample_by_gumbel_noise",
        "logits_of_the_k_best",
        "edge_of_the_nucleus",
        "the_kth_largest_by_bisection",
        "drafted_tokens_that_stand",
    ),
    "one token more with a cache, in generation alone": (
        "paged_attention_in_splits",
        "convolution_of_one_more_token",
        "cache_of_quantised_keys",
    ),
    "rounds or packs, so the derivative is zero nearly everywhere": (
        "int8_with_a_scale_a_row",
        "float8_in_groups",
        "nibbles_packed_and_unpacked",
        "stochastic_rounding_keeps_the_mean",
        "int8_product_with_scales_and_wrapped_rows",
    ),
    "a solver's steps in memory, whose adjoint is another kernel": ("buffers_that_change_places",),
    "expands stored codes, which are not trained": ("dequantised_tiles", "codes_of_a_table"),
    "integers go in or come out": (
        "rotary_angles_of_positions",
        "tokens_sorted_by_expert",
        "experts_of_the_best_groups",
        "running_sums_over_programs",
        "stable_sort_of_keys_with_places",
        "search_until_found",
        "tickets_of_few_keys",
        "bytes_of_words",
    ),
}
"""Names of cases under the reason that they share."""
