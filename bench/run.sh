#!/bin/sh
# Runs every benchmark of a build folder, then `epilogue bench` of the reference MLP and the ladder, and
# keeps what they printed: bench/run.sh [BUILD] [OUT].
# Exit 1 if any of them found a disagreement or a broken budget.
set -u
build=${1:-build}
out=${2:-$build/bench-results}
mkdir -p "$out"
status=0
for name in activation_bench dispatch_bench call_bench profiler_bench optimizer_bench train_bench fewer_bits_bench tune_bench tile_bench gemm_bench mlp_bench; do
  program=$build/bench/$name
  if [ ! -x "$program" ]; then
    echo "== $name: not built (gemm_bench and mlp_bench need libdnnl-dev)"
    continue
  fi
  echo "== $name"
  "$program" >"$out/$name.txt" 2>&1 || status=1
  cat "$out/$name.txt"
  echo
done
for workload in mlp ladder portability; do
  echo "== epilogue bench $workload"
  "$build/epilogue" bench "$workload" >"$out/bench_$workload.txt" 2>&1 || status=1
  cat "$out/bench_$workload.txt"
  echo
done
echo "reports: $out"
exit $status
