// SPDX-License-Identifier: Apache-2.0
// Ops of single numbers, rows and matrices; what optimizers call. Columns: op_knowledge.h.
#include "explain/knowledge/op_knowledge.h"

namespace epilogue::trace {
namespace {

// Texts of several rows.
constexpr std::string_view kStackMatrices = "torch.linalg takes batches: stack the matrices";
constexpr std::string_view kStackSystems =
    "torch.linalg takes batches: stack the matrices and right-hand sides";
constexpr std::string_view kChain = "several follow each other: each reads and writes memory";
constexpr std::string_view kCompileChain =
    "torch.compile makes one kernel of a chain; in-place forms save an allocation";
constexpr std::string_view kWholeTensor =
    "write it over the whole tensor, or use torch._foreach_* over a list of tensors";
constexpr std::string_view kReduceStacked =
    "reduce a stacked tensor along a dimension, or use torch._foreach_norm";
constexpr std::string_view kReduceSeldom =
    "reduce every few steps; foreach forms take all parameters in one call";
constexpr std::string_view kLogged = "a value for logging is reduced in every step";
constexpr std::string_view kScanRows =
    "stack the rows and scan along the last dimension in one call";
constexpr std::string_view kManyOperations =
    "it costs tens to hundreds of operations for each element and runs without vector instructions";
constexpr std::string_view kTabulate =
    "tabulate and interpolate if arguments repeat; compute what does not change once";
constexpr std::string_view kFactorisedAgain =
    "the same matrix is factorised again, or in a loop over a batch";
constexpr std::string_view kFactoriseOnce =
    "if the matrix stays, factorise it once and reuse the factor (cholesky_solve, lu_solve); if "
    "it consists of blocks that do not meet, or of many small matrices, one batched call on the "
    "blocks; if rows are added one by one, extend the factor by a row (solve_triangular); if few "
    "rows or columns change, an update of low rank (Woodbury); of a kernel matrix few inducing "
    "points; the _ex forms do not wait for errors on a device";
constexpr std::string_view kScanLast =
    "scan along the last, contiguous dimension; if a reversed one is needed, total minus cumsum "
    "gives it without flips; if rows are short, one product with a triangular matrix; if one "
    "element is new, add it to the sum before; sums over windows are differences of one cumsum";
constexpr std::string_view kPadToFactors =
    "pad to a size of small factors (a power of two); rfft of real input does half of the work; "
    "transform constant filters once";

constexpr OpKnowledge kNumberOps[] = {
    // --- Reductions and scans ------------------------------------------------------------
    {"sums and means", "sum mean nansum nanmean sum_to_size _grad_sum_to_size trace", OpCost::bytes,
     0.1, OpFuses::reduction, kLogged, kReduceSeldom, OpRole::main, kReduceStacked},
    {"largest and smallest", "amax amin max min aminmax _aminmax fmax fmin", OpCost::bytes, 0.1,
     OpFuses::reduction, kLogged, kReduceSeldom, OpRole::main, kReduceStacked},
    {"places of the largest", "argmax argmin", OpCost::bytes, 1.8, OpFuses::reduction, kLogged,
     kReduceSeldom, OpRole::main, kReduceStacked},
    {"variances", "std var var_mean std_mean", OpCost::bytes, 6.8, OpFuses::reduction,
     "mean and variance of the same rows are computed apart",
     "var_mean gives both in one pass; nn.LayerNorm does all of it", OpRole::main, kReduceStacked},
    {"norms of vectors", "norm linalg_vector_norm linalg_norm frobenius_norm linalg_matrix_norm",
     OpCost::bytes, 0.23, OpFuses::reduction,
     "the norm of each parameter is computed for clipping or for a log",
     "clip_grad_norm_(foreach=True); torch._foreach_norm takes all parameters in one call",
     OpRole::main, kReduceStacked},
    {"truth of all elements", "all any", OpCost::bytes, 2.8, OpFuses::reduction, kLogged,
     "reduce on the device and read the answer every few steps", OpRole::main, kReduceStacked},
    {"products of elements", "prod", OpCost::bytes, 0.11, OpFuses::reduction,
     "its factors are gathered for each result, though results share most of them",
     "build products level by level, each from the one above (or cumprod), or as exp of a sum of "
     "logarithms, which is a matrix product; its gradient divides, and is dear where it is zero",
     OpRole::main, kReduceStacked},
    {"covariances", "cov corrcoef", OpCost::flops, 0, OpFuses::alone,
     "they are computed over all features in every step",
     "a running sum of products (one mm a step) gives the same in the end", OpRole::either,
     kReduceStacked},
    {"scans", "cumsum cumprod", OpCost::scan, 1, OpFuses::scans,
     "it runs along a short or strided dimension, or twice to get a reversed sum", kScanLast,
     OpRole::either, kScanRows, OpSign::strided_scan},
    {"scans of the largest", "cummax cummin _cummax_helper _cummin_helper", OpCost::scan, 2.4,
     OpFuses::scans, "it runs along a short or strided dimension, or twice to get a reversed sum",
     kScanLast, OpRole::either, kScanRows, OpSign::strided_scan},
    {"scans of log sums", "logcumsumexp _logcumsumexp", OpCost::scan, 31, OpFuses::scans,
     "it runs along a short or strided dimension",
     "scan along the last, contiguous dimension; cumsum of exp(x - max) where the range allows it",
     OpRole::either, kScanRows, OpSign::strided_scan},
    {"differences and gradients", "diff gradient trapezoid trapz", OpCost::bytes, 0.53,
     OpFuses::pointwise, "", ""},
    // --- Pointwise -----------------------------------------------------------------------
    {"simple arithmetic",
     "add sub rsub mul div neg abs sign square reciprocal true_divide multiply divide subtract "
     "negative absolute positive sgn _add_relu",
     OpCost::bytes, 0.46, OpFuses::pointwise, kChain, kCompileChain, OpRole::main, kWholeTensor,
     OpSign::outer_broadcast},
    {"clamping", "clamp clamp_min clamp_max maximum minimum clip nan_to_num", OpCost::bytes, 0.23,
     OpFuses::pointwise, kChain, kCompileChain, OpRole::main, kWholeTensor,
     OpSign::outer_broadcast},
    {"arithmetic of three tensors", "addcmul addcdiv lerp", OpCost::bytes, 0.36, OpFuses::pointwise,
     kChain, kCompileChain, OpRole::main, kWholeTensor},
    {"simple activations",
     "threshold relu relu6 leaky_relu hardtanh hardsigmoid hardshrink softshrink "
     "threshold_backward hardtanh_backward leaky_relu_backward hardsigmoid_backward",
     OpCost::bytes, 0.35, OpFuses::pointwise, kChain, kCompileChain, OpRole::main, kWholeTensor},
    {"rounding", "floor ceil round trunc frac fix floor_divide fmod remainder copysign nextafter",
     OpCost::bytes, 0.2, OpFuses::pointwise, kChain, kCompileChain, OpRole::main, kWholeTensor,
     OpSign::outer_broadcast},
    {"comparisons",
     "eq ne lt le gt ge greater greater_equal less less_equal not_equal isnan isinf isfinite "
     "isposinf isneginf signbit heaviside isclose",
     OpCost::bytes, 0.85, OpFuses::pointwise, kChain, kCompileChain, OpRole::main, kWholeTensor,
     OpSign::outer_broadcast},
    {"logic and bits",
     "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not "
     "bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ "
     "__rshift__",
     OpCost::bytes, 0.064, OpFuses::pointwise, kChain, kCompileChain, OpRole::main, kWholeTensor,
     OpSign::outer_broadcast},
    {"whole numbers", "gcd lcm ldexp frexp deg2rad rad2deg", OpCost::bytes, 5.9, OpFuses::pointwise,
     kChain, kCompileChain, OpRole::main, kWholeTensor},
    {"exponentials and logarithms",
     "exp exp2 expm1 log log2 log10 log1p xlogy xlog1py logaddexp logaddexp2 logit special_expit "
     "special_entr",
     OpCost::arithmetic, 1.4, OpFuses::pointwise, "exp(log()) of the same, or log of a softmax",
     "log_softmax, logsumexp and log1p do it in one op; torch.compile", OpRole::main,
     "write it over the whole tensor", OpSign::outer_broadcast},
    {"roots", "sqrt rsqrt hypot", OpCost::arithmetic, 0.8, OpFuses::pointwise,
     "pow with a whole exponent, or exp(log()) of the same",
     "x * x for pow(x, 2); tanh's approximation of GELU (approximate='tanh') where the model "
     "allows it; torch.compile",
     OpRole::main, "write it over the whole tensor", OpSign::outer_broadcast},
    {"trigonometric functions", "sin cos tan asin acos atan atan2 arctan2 sinc", OpCost::arithmetic,
     2, OpFuses::pointwise, "angles of positions are computed in every step",
     "make the table of sines and cosines once and keep it as a buffer", OpRole::main,
     "write it over the whole tensor", OpSign::outer_broadcast},
    {"hyperbolic functions", "sinh cosh tanh asinh acosh atanh tanh_backward", OpCost::arithmetic,
     4.1, OpFuses::pointwise, "GELU or a gate is written with tanh",
     "F.gelu(approximate=\"tanh\") is one op; torch.compile fuses the others", OpRole::main,
     "write it over the whole tensor", OpSign::outer_broadcast},
    {"error functions", "erf erfc erfinv special_erf special_ndtr special_log_ndtr",
     OpCost::arithmetic, 2.2, OpFuses::pointwise, "GELU is written with erf", "F.gelu is one op",
     OpRole::main, "write it over the whole tensor", OpSign::outer_broadcast},
    {"powers", "pow float_power", OpCost::arithmetic, 7.2, OpFuses::pointwise,
     "the exponent is a whole number or a half", "x * x for pow(x, 2), sqrt for pow(x, 0.5)",
     OpRole::main, "write it over the whole tensor", OpSign::outer_broadcast},
    {"smooth activations",
     "sigmoid gelu silu mish elu celu selu softplus logsigmoid log_sigmoid log_sigmoid_forward glu "
     "prelu _prelu_kernel",
     OpCost::arithmetic, 1.3, OpFuses::pointwise,
     "the exact form is used where the model allows a cheaper one, or a gate is several ops",
     "F.gelu(approximate='tanh') on a device; torch.compile fuses gates with the products' results",
     OpRole::main, "write it over the whole tensor", OpSign::outer_broadcast},
    {"gradients of activations",
     "gelu_backward silu_backward sigmoid_backward elu_backward softplus_backward glu_backward "
     "log_sigmoid_backward mish_backward _prelu_kernel_backward",
     OpCost::arithmetic, 2.2, OpFuses::pointwise, kChain,
     "torch.compile makes one kernel of a chain of gradients", OpRole::main,
     "write it over the whole tensor", OpSign::outer_broadcast},
    {"gamma functions",
     "lgamma digamma polygamma mvlgamma igamma igammac special_gammaln special_psi "
     "special_multigammaln special_gammainc special_gammaincc",
     OpCost::arithmetic, 14, OpFuses::alone, kManyOperations, kTabulate, OpRole::either,
     "call it once on the whole tensor"},
    {"Bessel functions",
     "special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_i0 "
     "special_i0e special_i1 special_i1e i0 special_modified_bessel_i0 special_modified_bessel_i1 "
     "special_modified_bessel_k0 special_modified_bessel_k1 special_spherical_bessel_j0 "
     "special_airy_ai",
     OpCost::arithmetic, 5.5, OpFuses::alone, kManyOperations, kTabulate, OpRole::either,
     "call it once on the whole tensor"},
    {"orthogonal polynomials",
     "special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_hermite_polynomial_h "
     "special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p",
     OpCost::arithmetic, 5.8, OpFuses::alone, "each degree is computed from the start",
     "the recurrence gives all degrees in one pass: keep the two last ones", OpRole::either,
     "call it once on the whole tensor"},
    {"other special functions", "special_zeta special_ndtri special_erfcx", OpCost::arithmetic, 240,
     OpFuses::alone, kManyOperations, kTabulate, OpRole::either,
     "call it once on the whole tensor"},
    {"complex numbers", "complex polar angle conj_physical _conj_physical resolve_conj resolve_neg",
     OpCost::bytes, 9.7, OpFuses::alone, "complex tensors fall out of fused kernels",
     "two real tensors (or a last dimension of 2) fuse; rotary embeddings need no complex numbers",
     OpRole::either},
    {"parts of complex numbers", "view_as_real view_as_complex real imag conj _conj _neg_view",
     OpCost::metadata, 0, OpFuses::alone, "complex tensors fall out of fused kernels",
     "two real tensors (or a last dimension of 2) fuse; rotary embeddings need no complex numbers",
     OpRole::either},
    {"comparison of all elements", "equal allclose is_nonzero", OpCost::wait, 1, OpFuses::alone,
     "the host waits for the answer on a device",
     "keep checks out of the step, or count mismatches on the device and read them later",
     OpRole::aside, "compare whole tensors once"},
    {"reading a number", "item _local_scalar_dense tolist", OpCost::wait, 2000, OpFuses::alone,
     "a loss or a condition is read in every step: the host waits",
     "read it every few steps, or keep a sum on the device (detach) and read it once",
     OpRole::aside,
     ".tolist() reads all numbers of a tensor at once; sums and comparisons of whole tensors need "
     "no loop"},
    // --- Distances -----------------------------------------------------------------------
    {"distances of all pairs", "cdist _cdist_forward _cdist_backward _euclidean_dist",
     OpCost::pairs, 0.58, OpFuses::alone, "p = 2 over many points is computed pair by pair",
     "leave compute_mode at its default, or 'use_mm_for_euclid_dist': a matrix product, exact "
     "enough to rank neighbours; its gradient too; squared distances need no root; topk of blocks "
     "keeps the matrix small; of points that stay, compute the neighbours once; of points in reach "
     "sort them into cells of a grid; if samples have points of their own, a batch dimension in "
     "place of all with all",
     OpRole::either, "cdist takes batches: stack the point sets"},
    {"distances within a set", "pdist _pdist_forward _pdist_backward", OpCost::pairs, 0.058,
     OpFuses::alone, "p = 2 over many points is computed pair by pair",
     "cdist(x, x) with compute_mode=\"use_mm_for_euclid_dist\" is a matrix product, though it "
     "computes each pair twice",
     OpRole::either, "cdist takes batches: stack the point sets"},
    {"distances of rows", "pairwise_distance dist", OpCost::bytes, 1.4, OpFuses::alone,
     "it is called for each pair of rows", "broadcast once, or cdist for all pairs", OpRole::either,
     "cdist takes batches: stack the point sets"},
    // --- Spectra -------------------------------------------------------------------------
    {"Fourier transforms of real numbers",
     "_fft_r2c _fft_c2r fft_rfft fft_irfft fft_hfft fft_ihfft", OpCost::transform, 0.15,
     OpFuses::alone, "sizes have large prime factors",
     "pad to a size of small factors (a power of two); transform constant filters once, and a "
     "signal that meets many filters once; add products in the spectrum and transform back once; a "
     "convolution of few taps is faster directly",
     OpRole::either, "transforms take batches: stack the signals"},
    {"Fourier transforms of complex numbers", "_fft_c2c fft_fft fft_ifft", OpCost::transform, 0.35,
     OpFuses::alone,
     "sizes have large prime factors, or a complex transform is taken of real numbers",
     kPadToFactors, OpRole::either, "transforms take batches: stack the signals"},
    {"Fourier transforms of several dimensions",
     "fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfft2 "
     "fft_hfftn",
     OpCost::transform, 0.31, OpFuses::alone,
     "sizes have large prime factors, or a complex transform is taken of real numbers",
     kPadToFactors, OpRole::either, "transforms take batches: stack the signals"},
    {"short-time transforms", "stft istft", OpCost::transform, 0.23, OpFuses::alone,
     "windows or filters are made anew in every call",
     "keep the window as a buffer; compute features once, in the loader or before training (cached "
     "on disk), under torch.no_grad() if nothing before them is trained; a larger hop_length; of "
     "Griffin-Lim fewer iterations, with momentum; "
     "several n_fft of one sound: only those that are read",
     OpRole::either, "stft takes batches: stack the signals"},
    {"windows", "hann_window hamming_window blackman_window kaiser_window bartlett_window",
     OpCost::arithmetic, 2.4, OpFuses::pointwise, "the window is made anew in every call",
     "keep the window as a buffer", OpRole::aside, "stft takes batches: stack the signals"},
    // --- Linear algebra ------------------------------------------------------------------
    {"Cholesky factors", "linalg_cholesky linalg_cholesky_ex cholesky", OpCost::solve, 0.016,
     OpFuses::alone, kFactorisedAgain, kFactoriseOnce, OpRole::either, kStackMatrices},
    {"LU factors", "linalg_lu linalg_lu_factor linalg_lu_factor_ex lu_unpack _lu_with_info",
     OpCost::solve, 0.034, OpFuses::alone, kFactorisedAgain, kFactoriseOnce, OpRole::either,
     kStackMatrices},
    {"QR factors", "linalg_qr geqrf linalg_householder_product orgqr ormqr qr", OpCost::solve,
     0.091, OpFuses::alone, "it orthogonalises, or solves least squares by the way",
     "a Cholesky factor of A^T A costs half if A is well conditioned; mode=\"r\" leaves Q out; to "
     "keep vectors orthogonal every few steps will do, or a few products (Newton-Schulz)",
     OpRole::either, kStackMatrices},
    {"LDL factors", "linalg_ldl_factor linalg_ldl_factor_ex", OpCost::solve, 0.022, OpFuses::alone,
     kFactorisedAgain, kFactoriseOnce, OpRole::either, kStackMatrices},
    {"solving",
     "linalg_solve linalg_solve_ex _linalg_solve_ex linalg_lu_solve lu_solve linalg_ldl_solve "
     "linalg_tensorsolve solve",
     OpCost::solve, 0.12, OpFuses::alone, "right-hand sides come one at a time",
     "if the matrix has a form, use it: blocks that do not meet are a batch of small systems (one "
     "call on [blocks, n, n]), a diagonal divides, a triangular one takes solve_triangular, a "
     "symmetric positive definite one cholesky_solve, a band a loop of few terms, circulant and "
     "Toeplitz ones an FFT, a Kronecker product two small solves, a diagonal plus few columns the "
     "formula of Woodbury; if it stays, factorise it once and keep the factor (lu_factor, "
     "lu_solve), which also gives the log-determinant (2 * L.diagonal().log().sum()); if several "
     "right-hand sides meet it, stack right-hand sides to one call; if it is large and changes "
     "little, conjugate gradients from the solution before",
     OpRole::either, kStackSystems, OpSign::one_column},
    {"triangular systems",
     "linalg_solve_triangular triangular_solve cholesky_solve _cholesky_solve_helper",
     OpCost::solve, 0.04, OpFuses::alone, "right-hand sides come one at a time",
     "if several right-hand sides meet one matrix, stack right-hand sides to one call; if the "
     "matrix stays, keep the factorisation (cholesky_solve, lu_solve), or its inverse if it is "
     "small and well conditioned",
     OpRole::either, kStackSystems, OpSign::one_column},
    {"least squares", "linalg_lstsq", OpCost::solve, 0.24, OpFuses::alone,
     "many small systems are solved one by one, or the matrix stays the same",
     "keep a QR or Cholesky factor of it; batches go in one call", OpRole::either, kStackSystems,
     OpSign::one_column},
    {"inverses", "linalg_inv linalg_inv_ex inverse cholesky_inverse linalg_tensorinv",
     OpCost::solve, 0.14, OpFuses::alone, "the inverse is multiplied with something",
     "linalg.solve does less work and is more exact; if solve, inv or slogdet meet the same "
     "matrix, factorise it once and give the "
     "factor to all of them (L = linalg.cholesky(A) if it is symmetric and positive definite, else "
     "lu_factor): cholesky_solve(b, L), 2 * L.diagonal().log().sum() for the log-determinant, "
     "cholesky_inverse where the inverse itself is "
     "read; if the matrices of a batch are equal (a model that all series share: covariances and "
     "gains of a Kalman filter do not depend on the data), carry one matrix for all and broadcast "
     "it, or compute it once in advance",
     OpRole::aside, kStackMatrices, OpSign::then_product},
    {"pseudo-inverses", "linalg_pinv pinverse", OpCost::solve, 0.47, OpFuses::alone,
     "it is multiplied with something: an SVD for a solve",
     "lstsq, or solve of A^T A + eps I, does less work", OpRole::aside, kStackMatrices,
     OpSign::then_product},
    {"determinants", "linalg_det _linalg_det det linalg_slogdet _linalg_slogdet slogdet logdet",
     OpCost::solve, 0.029, OpFuses::alone, "a factor of the same matrix is computed beside it",
     "log-determinants follow from a Cholesky or LU factor's diagonal; if solve, inv or slogdet "
     "meet the same matrix, factorise it once and give the "
     "factor to all of them (L = linalg.cholesky(A) if it is symmetric and positive definite, else "
     "lu_factor): cholesky_solve(b, L), 2 * L.diagonal().log().sum() for the log-determinant; "
     "slogdet does not overflow",
     OpRole::aside, kStackMatrices},
    {"powers of matrices", "linalg_matrix_power matrix_power", OpCost::solve, 0.048, OpFuses::alone,
     "powers are computed one after the other",
     "if powers follow each other, keep the power before: one product a step; if they are applied "
     "to vectors, multiply the vectors by squarings; if many powers of one matrix are needed, "
     "diagonalise once (eigenvalues to all powers at once)",
     OpRole::aside, kStackMatrices},
    {"exponentials of matrices", "linalg_matrix_exp matrix_exp linalg_matrix_sqrth linalg_polar",
     OpCost::solve, 0.15, OpFuses::alone, "it is applied to one vector",
     "a few products with the vector (Krylov, Taylor) do less; of one matrix at many times "
     "diagonalise once (eigh, then exp of the eigenvalues); a propagator of a step that stays, "
     "once; of rotations (antisymmetric 3 x 3) the formula of Rodrigues; batches go in one call",
     OpRole::aside, kStackMatrices},
    {"eigenvalues of symmetric matrices", "linalg_eigh _linalg_eigh linalg_eigvalsh lobpcg",
     OpCost::solve, 0.17, OpFuses::alone, "all are computed where a few are read, or for a norm",
     "if the matrix does not depend on weights (a graph's Laplacian, a fixed kernel), compute it "
     "once with the data and keep it; eigvalsh if vectors are not read; lobpcg for a few; a power "
     "iteration for a spectral norm; on a CPU batches go one by one",
     OpRole::either, kStackMatrices},
    {"eigenvalues", "linalg_eig linalg_eigvals _linalg_eigvals", OpCost::solve, 1.2, OpFuses::alone,
     "the matrix is symmetric", "eigh of a symmetric matrix is several times cheaper and real",
     OpRole::either, kStackMatrices},
    {"singular values",
     "linalg_svd _linalg_svd linalg_svdvals svd linalg_matrix_rank linalg_cond nuclear_norm",
     OpCost::solve, 0.42, OpFuses::alone,
     "all are computed where a few are read, or for a norm; full_matrices is left at True",
     "full_matrices=False computes only the columns of U and V that belong to a singular value; "
     "svdvals if vectors are not read; svd_lowrank for the largest few; a power iteration for a "
     "spectral norm; of a tall matrix eigh of A^T A, if it is well conditioned",
     OpRole::either, kStackMatrices},
    {"cross products", "linalg_cross cross", OpCost::bytes, 4.8, OpFuses::pointwise, "", ""},
    // --- Optimizer and training ----------------------------------------------------------
    {"optimizer steps, foreach",
     "_foreach_add _foreach_mul _foreach_div _foreach_addcdiv _foreach_addcmul _foreach_sqrt "
     "_foreach_lerp _foreach_neg _foreach_sub _foreach_pow _foreach_maximum _foreach_reciprocal "
     "_foreach_minimum _foreach_clamp_min _foreach_clamp_max _foreach_abs _foreach_exp "
     "_foreach_log _foreach_rsqrt _foreach_sign _foreach_round _foreach_sigmoid _foreach_tanh",
     OpCost::bytes, 4.1, OpFuses::pointwise, "each op reads and writes all parameters",
     "fused=True makes one kernel of a step"},
    {"norms of lists", "_foreach_norm _foreach_max _foreach_powsum", OpCost::bytes, 3.5,
     OpFuses::reduction, "norms of all gradients are read by the host in every step",
     "clip_grad_norm_ keeps the norm on the device; read it every few steps"},
    {"copies and fills of lists", "_foreach_copy _foreach_zero _foreach_clone", OpCost::bytes, 0.36,
     OpFuses::pointwise, "gradients are set to zero, or parameters are copied to another list",
     "zero_grad(set_to_none=True) writes nothing; an average of weights every few steps"},
    {"optimizer steps, fused", "_fused_adam _fused_adamw _fused_sgd _fused_adagrad", OpCost::bytes,
     0, OpFuses::alone, "", ""},
    {"scaling of gradients", "_amp_foreach_non_finite_check_and_unscale _amp_update_scale",
     OpCost::bytes, 0, OpFuses::alone, "a loss is scaled that is not float16's",
     "bf16 needs no GradScaler"},
    {"checks of gradients", "_is_any_true _is_all_true _assert_async _functional_assert_async",
     OpCost::bytes, 0, OpFuses::alone, "anomaly mode is on",
     "switch torch.autograd.set_detect_anomaly on to find a NaN, not for whole runs", OpRole::aside,
     "check once per step"},
    {"differentiated checks of shapes",
     "_assert_tensor_metadata _assert_scalar sym_constrain_range sym_constrain_range_for_size",
     OpCost::metadata, 0, OpFuses::alone, "", ""},
};

}  // namespace

std::span<const OpKnowledge> number_ops() { return kNumberOps; }

}  // namespace epilogue::trace
