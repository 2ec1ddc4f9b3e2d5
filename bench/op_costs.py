#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Costs of PyTorch's ops by the units of the table of ops (src/explain/knowledge), one op a family.

  bench/op_costs.py [--only TEXT] [--rounds 7]

Prints ns for each unit (an element, n log2 n of a sort, n^3 of a factorisation, ...) of one call in
float32 on one thread: the shortest CPU time of the rounds. The table keeps these numbers: where a
trace's op takes many times as long, `explain` says so. Units are those of op_cost_unit().
"""
import argparse
import math
import time

import torch
import torch.nn.functional as F

N = 1 << 20  # elements of most tensors
M = 512      # rows and columns of matrices


def log2(n):
    return math.log2(n)


def cases():
    x = torch.randn(1024, 1024)
    y = torch.randn(1024, 1024)
    row = torch.randn(1024)
    positive = x.abs() + 0.1
    bits = x > 0
    whole = torch.randint(0, 1000, (1024, 1024))
    index = torch.randint(0, 1024, (1024,))
    table = torch.randn(50_000, 64)
    ids = torch.randint(0, 50_000, (16_384,))
    image = torch.randn(8, 16, 64, 128)
    signal = torch.randn(64, 16_384)
    square = torch.randn(M, M)
    definite = square @ square.T + M * torch.eye(M)
    small = torch.randn(2048, 64)
    cube = float(M) ** 3
    aten = torch.ops.aten
    quantised = torch.quantize_per_tensor(x, 0.05, 0, torch.qint8)
    sparse = torch.where(torch.rand(2048, 2048) < 0.01, 1.0, 0.0)
    coo = sparse.to_sparse()
    csr = sparse.to_sparse_csr()
    wide = torch.randn(2048, 512)
    grid = torch.rand(8, 64, 128, 2) * 2 - 1
    q = torch.randn(4, 8, 256, 64)
    pooled, places = F.max_pool2d(image, 2, return_indices=True)
    lists = [torch.randn(1024) for _ in range(1024)]
    lstm, gru = torch.nn.LSTM(128, 128), torch.nn.GRU(128, 128)
    steps = torch.randn(64, 32, 128)
    rnn_flops = 2 * 64 * 32 * 128 * 128 * 2
    log_rows = torch.log_softmax(torch.randn(50, 16, 32), -1)
    targets = torch.randint(1, 32, (16, 20))
    norm = torch.nn.functional
    e = x.numel()
    conv_flops = 2 * image.numel() * 16 * 9
    return [
        ("embedding", lambda: F.embedding(ids, table), ids.numel() * 64),
        ("embedding_dense_backward",
         lambda: aten.embedding_dense_backward(torch.ones(16_384, 64), ids, 50_000, -1, False),
         50_000 * 64),
        ("_embedding_bag", lambda: F.embedding_bag(ids.view(-1, 16), table), ids.numel() * 64),
        ("index_select", lambda: x.index_select(0, index), e),
        ("gather", lambda: x.gather(1, whole), e),
        ("index", lambda: x[index], e),
        ("index_put", lambda: x.clone().index_put_((index,), y), e),
        ("index_add", lambda: x.clone().index_add_(0, index, y), e),
        ("scatter_reduce", lambda: x.scatter_reduce(1, whole, y, "amax"), e),
        ("scatter", lambda: x.scatter(1, whole, y), e),
        ("masked_select", lambda: x.masked_select(bits), e),
        ("masked_fill", lambda: x.masked_fill(bits, 0.0), e),
        ("nonzero", lambda: bits.nonzero(), e),
        ("_unique2", lambda: whole.unique(), e * 20),
        ("unique_consecutive", lambda: whole.unique_consecutive(), e),
        ("bincount", lambda: whole.view(-1).bincount(), e),
        ("histc", lambda: x.histc(100), e),
        ("one_hot", lambda: F.one_hot(index, 1024), e),
        ("searchsorted", lambda: torch.searchsorted(table[:, 0].sort().values, x), e * log2(50_000)),
        ("isin", lambda: torch.isin(whole, index), e * 10),
        ("sort", lambda: x.sort(), e * 10),
        ("argsort", lambda: x.argsort(), e * 10),
        ("topk", lambda: x.topk(16), e * 10),
        ("kthvalue", lambda: x.kthvalue(16), e * 10),
        ("median", lambda: x.median(-1), e * 10),
        ("quantile", lambda: x.quantile(0.5, dim=-1), e * 10),
        ("mode", lambda: whole.mode(-1), e * 10),
        ("cat", lambda: torch.cat((x, y)), 2 * e),
        ("stack", lambda: torch.stack((x, y)), 2 * e),
        ("clone", lambda: x.clone(), e),
        ("_to_copy", lambda: x.to(torch.bfloat16), e),
        ("contiguous", lambda: x.t().contiguous(), e),
        ("repeat", lambda: row.repeat(1024, 1), e),
        ("repeat_interleave", lambda: x[:256].repeat_interleave(4, 0), e),
        ("constant_pad_nd", lambda: F.pad(image, (1, 1, 1, 1)), e),
        ("reflection_pad2d", lambda: F.pad(image, (1, 1, 1, 1), mode="reflect"), e),
        ("roll", lambda: x.roll(1, 0), e),
        ("flip", lambda: x.flip(-1), e),
        ("pixel_shuffle", lambda: F.pixel_shuffle(image, 2), e),
        ("tril", lambda: x.tril(), e),
        ("zero", lambda: y.new_empty(1024, 1024).zero_(), e),
        ("full", lambda: torch.full((1024, 1024), 1.0), e),
        ("arange", lambda: torch.arange(N), e),
        ("meshgrid", lambda: [t.contiguous() for t in torch.meshgrid(row, row, indexing="ij")], 2 * e),
        ("randn", lambda: torch.randn(1024, 1024), e),
        ("rand", lambda: torch.rand(1024, 1024), e),
        ("randint", lambda: torch.randint(0, 1000, (1024, 1024)), e),
        ("exponential", lambda: y.new_empty(1024, 1024).exponential_(), e),
        ("poisson", lambda: torch.poisson(positive), e),
        ("native_dropout", lambda: F.dropout(x, 0.1, True), e),
        ("bernoulli", lambda: torch.bernoulli(bits.float(), 0.5), e),
        ("multinomial", lambda: positive.multinomial(16), e * 10),
        ("randperm", lambda: torch.randperm(N), e * 20),
        ("_sobol_engine_draw", lambda: torch.quasirandom.SobolEngine(16).draw(65_536), e),
        ("mm", lambda: x @ y, 2.0 * 1024 ** 3),
        ("mv", lambda: x @ row, 2.0 * e),
        ("dot", lambda: x.view(-1).dot(y.view(-1)), 2.0 * e),
        ("bmm", lambda: x.view(16, 256, 256) @ y.view(16, 256, 256), 2.0 * 16 * 256 ** 3),
        ("einsum", lambda: torch.einsum("ik,kj->ij", x, y), 2.0 * 1024 ** 3),
        ("kron", lambda: torch.kron(x[:32, :32], y[:32, :32]), e),
        ("_int_mm", lambda: torch._int_mm(quantised.int_repr(), quantised.int_repr()), 2.0 * 1024 ** 3),
        ("slow_conv_dilated2d",
         lambda: aten.slow_conv_dilated2d(image, torch.ones(16, 16, 3, 3), [3, 3], None, [1, 1],
                                          [2, 2], [2, 2]), conv_flops),
        ("_conv_depthwise2d", lambda: F.conv2d(image, torch.ones(16, 1, 3, 3), padding=1, groups=16),
         e),
        ("convolution", lambda: F.conv2d(image, torch.ones(16, 16, 3, 3), padding=1), conv_flops),
        ("conv_transpose2d", lambda: F.conv_transpose2d(image, torch.ones(16, 16, 3, 3), padding=1),
         conv_flops),
        ("im2col", lambda: F.unfold(image[:, :2], 3), 8 * 18 * 62 * 126),
        ("lstm", lambda: lstm(steps), 4 * rnn_flops),
        ("gru", lambda: gru(steps), 3 * rnn_flops),
        ("_pack_padded_sequence",
         lambda: torch.nn.utils.rnn.pack_padded_sequence(steps, torch.full((32,), 64)), steps.numel()),
        ("scaled_dot_product_attention", lambda: F.scaled_dot_product_attention(q, q, q),
         4.0 * 32 * 256 * 256 * 64),
        ("_scaled_dot_product_attention_math",
         lambda: aten._scaled_dot_product_attention_math(q, q, q), 4.0 * 32 * 256 * 256 * 64),
        ("batch_norm", lambda: F.batch_norm(image, None, None, training=True), e),
        ("layer_norm", lambda: norm.layer_norm(x, (1024,)), e),
        ("rms_norm", lambda: norm.rms_norm(x, (1024,)), e),
        ("group_norm", lambda: F.group_norm(image, 4), e),
        ("instance_norm", lambda: F.instance_norm(image), e),
        ("_weight_norm", lambda: torch._weight_norm(x, positive[:, :1], 0), e),
        ("softmax", lambda: x.softmax(-1), e),
        ("log_softmax", lambda: x.log_softmax(-1), e),
        ("_softmax_backward_data", lambda: aten._softmax_backward_data(x, y, -1, torch.float32), e),
        ("logsumexp", lambda: x.logsumexp(-1), e),
        ("sum", lambda: x.sum(-1), e),
        ("amax", lambda: x.amax(-1), e),
        ("argmax", lambda: x.argmax(-1), e),
        ("var", lambda: x.var(-1), e),
        ("linalg_vector_norm", lambda: x.norm(dim=-1), e),
        ("any", lambda: bits.any(-1), e),
        ("prod", lambda: x.prod(-1), e),
        ("cumsum", lambda: x.cumsum(-1), e),
        ("cummax", lambda: x.cummax(-1), e),
        ("logcumsumexp", lambda: x.logcumsumexp(-1), e),
        ("diff", lambda: x.diff(), e),
        ("add", lambda: x + y, e),
        ("clamp", lambda: x.clamp(-1, 1), e),
        ("addcmul", lambda: torch.addcmul(x, y, y), e),
        ("relu", lambda: x.relu(), e),
        ("floor", lambda: x.floor(), e),
        ("gt", lambda: x > y, e),
        ("logical_and", lambda: bits & bits, e),
        ("gcd", lambda: torch.gcd(whole, whole + 1), e),
        ("exp", lambda: x.exp(), e),
        ("sqrt", lambda: positive.sqrt(), e),
        ("sin", lambda: x.sin(), e),
        ("tanh", lambda: x.tanh(), e),
        ("erf", lambda: x.erf(), e),
        ("pow", lambda: positive.pow(1.5), e),
        ("gelu", lambda: F.gelu(x), e),
        ("gelu_backward", lambda: aten.gelu_backward(x, y), e),
        ("lgamma", lambda: positive.lgamma(), e),
        ("special_bessel_j0", lambda: torch.special.bessel_j0(x), e),
        ("special_hermite_polynomial_h", lambda: torch.special.hermite_polynomial_h(x, row.new_full((), 4)), e),
        ("special_zeta", lambda: torch.special.zeta(positive + 1, positive), e),
        ("polar", lambda: torch.polar(positive, x), e),
        ("equal", lambda: torch.equal(x, x.clone()), e),
        ("cross_entropy_loss", lambda: F.cross_entropy(x, index), e),
        ("mse_loss", lambda: F.mse_loss(x, y), e),
        ("binary_cross_entropy_with_logits",
         lambda: F.binary_cross_entropy_with_logits(x, bits.float()), e),
        ("kl_div", lambda: F.kl_div(x, positive, reduction="sum"), e),
        ("multi_margin_loss", lambda: F.multi_margin_loss(x, index), e),
        ("triplet_margin_loss", lambda: F.triplet_margin_loss(x, y, positive), e),
        ("cosine_similarity", lambda: F.cosine_similarity(x, y), e),
        ("ctc_loss", lambda: F.ctc_loss(log_rows, targets, (50,) * 16, (20,) * 16), 50 * 16 * 41),
        ("cdist", lambda: torch.cdist(small, small, p=1), 2048.0 * 2048 * 64),
        ("pdist", lambda: torch.pdist(small), 2048.0 * 2048 * 64),
        ("pairwise_distance", lambda: F.pairwise_distance(x, y), e),
        ("upsample_bicubic2d", lambda: F.interpolate(image, scale_factor=2, mode="bicubic"), 4 * e),
        ("upsample_bilinear2d", lambda: F.interpolate(image, scale_factor=2, mode="bilinear"), 4 * e),
        ("upsample_nearest2d", lambda: F.interpolate(image, scale_factor=2), 4 * e),
        ("upsample_linear1d", lambda: F.interpolate(image.flatten(2), scale_factor=2, mode="linear"),
         2 * e),
        ("_upsample_bilinear2d_aa",
         lambda: F.interpolate(image, scale_factor=0.5, mode="bilinear", antialias=True), e),
        ("grid_sampler_2d", lambda: F.grid_sample(image, grid, align_corners=False), e),
        ("affine_grid_generator",
         lambda: F.affine_grid(torch.ones(8, 2, 3), (8, 16, 256, 256), align_corners=False), e),
        ("max_pool2d", lambda: F.max_pool2d(image, 2), e),
        ("max_pool2d_with_indices_backward",
         lambda: aten.max_pool2d_with_indices_backward(pooled, image, [2, 2], [2, 2], [0, 0], [1, 1],
                                                       False, places), e),
        ("avg_pool2d", lambda: F.avg_pool2d(image, 2), e),
        ("max_unpool2d", lambda: F.max_unpool2d(pooled, places, 2), e),
        ("adaptive_avg_pool2d", lambda: F.adaptive_avg_pool2d(image, 8), e),
        ("adaptive_max_pool2d", lambda: F.adaptive_max_pool2d(image, 8), e),
        ("fractional_max_pool2d", lambda: F.fractional_max_pool2d(image, 2, output_ratio=(0.5, 0.5)), e),
        ("fft_rfft", lambda: torch.fft.rfft(signal), signal.numel() * 14),
        ("fft_fft", lambda: torch.fft.fft(signal.to(torch.complex64)), signal.numel() * 14),
        ("fft_fft2", lambda: torch.fft.fft2(image), e * 13),
        ("stft", lambda: torch.stft(signal, 512, window=torch.ones(512), return_complex=True),
         signal.numel() * 9 * 4),
        ("hann_window", lambda: torch.hann_window(N), e),
        ("linalg_cholesky", lambda: torch.linalg.cholesky(definite), cube),
        ("linalg_lu_factor", lambda: torch.linalg.lu_factor(square), cube),
        ("linalg_qr", lambda: torch.linalg.qr(square), cube),
        ("linalg_ldl_factor", lambda: torch.linalg.ldl_factor(definite), cube),
        ("linalg_solve", lambda: torch.linalg.solve(square, square), cube),
        ("linalg_solve_triangular",
         lambda: torch.linalg.solve_triangular(definite.tril(), square, upper=False), cube),
        ("linalg_lstsq", lambda: torch.linalg.lstsq(square, square), cube),
        ("linalg_inv", lambda: torch.linalg.inv(square), cube),
        ("linalg_pinv", lambda: torch.linalg.pinv(square), cube),
        ("linalg_det", lambda: torch.linalg.det(square), cube),
        ("linalg_matrix_power", lambda: torch.linalg.matrix_power(square, 4), cube),
        ("linalg_matrix_exp", lambda: torch.linalg.matrix_exp(square / M), cube),
        ("linalg_eigh", lambda: torch.linalg.eigh(definite), cube),
        ("linalg_eig", lambda: torch.linalg.eig(square), cube),
        ("linalg_svd", lambda: torch.linalg.svd(square), cube),
        ("linalg_cross", lambda: torch.linalg.cross(x[:, :1023].reshape(-1, 3), y[:, :1023].reshape(-1, 3)),
         e),
        ("quantize_per_tensor", lambda: torch.quantize_per_tensor(x, 0.05, 0, torch.qint8), e),
        ("dequantize", lambda: quantised.dequantize(), e),
        ("fake_quantize_per_tensor_affine",
         lambda: torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127), e),
        ("_sparse_mm", lambda: csr @ wide, 0.01 * 2048 * wide.numel()),
        ("to_sparse", lambda: sparse.to_sparse(), sparse.numel()),
        ("to_dense", lambda: coo.to_dense(), sparse.numel()),
        ("coalesce", lambda: torch.sparse_coo_tensor(coo.indices(), coo.values()).coalesce(),
         coo._nnz() * log2(coo._nnz())),
        ("_foreach_add", lambda: torch._foreach_add(lists, 1.0), e),
        ("_foreach_norm", lambda: torch._foreach_norm(lists), e),
        ("_foreach_zero", lambda: torch._foreach_zero_(lists), e),
        ("view", lambda: x.view(-1), 1),
        ("t", lambda: x.t(), 1),
        ("slice", lambda: x[1:9], 1),
        ("empty", lambda: torch.empty(16), 1),
        ("item", lambda: row[0].item(), 1),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="ops whose name holds this")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, call, units in cases():
            if args.only not in name:
                continue
            try:
                call()
            except (RuntimeError, NotImplementedError, TypeError) as error:
                print(f"{name:<36} {str(error).splitlines()[0]}", flush=True)
                continue
            calls = 200 if units == 1 else 1
            shortest = float("inf")
            for _ in range(args.rounds):
                start = time.thread_time_ns()
                for _ in range(calls):
                    call()
                shortest = min(shortest, (time.thread_time_ns() - start) / calls)
            print(f"{name:<36}{shortest / units:>14.4g}{shortest / 1e3:>14.1f} us", flush=True)


if __name__ == "__main__":
    main()
