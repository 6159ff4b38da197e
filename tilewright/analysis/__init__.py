"""Facts about tile IR, read-only. One subject a file:

`solver` finds facts of values, `states` what may be the case at each operation; `axis` contiguity and divisibility;
`index`, `elements` and `affine` which element an address or a mask means; `constants`, `captured`, `effects`.
"""
