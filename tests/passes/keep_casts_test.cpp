// SPDX-License-Identifier: Apache-2.0
#include "pass_testing.h"

namespace epilogue::testing::keep_casts_test {

const PassCases kCases(
    "keep_casts",
    {{"ACastOfAParameterIsAParameter",
      [] {
        return graph_of({zeros({3, 4}, DType::bf16)}, {zeros({6, 4})},
                        [](In x, In p) { return linear(x[0], to(p[0], DType::bf16)); });
      }},
     {"OneThatAResultIsAViewOfStays",
      [] {
        return graph_of({zeros({3, 4}, DType::bf16)}, {zeros({6, 4}), zeros({6, 4})},
                        [](In x, In p) {
                          const Tensor y = linear(x[0], to(p[0], DType::bf16));
                          return Out{y, t(to(p[1], DType::bf16))};
                        });
      }},
     {"OneThatIsAResultStays",
      [] {
        return graph_of({zeros({3, 4})}, {zeros({6, 4})}, [](In x, In p) {
          return Out{neg(x[0]), to(p[0], DType::bf16)};
        });
      }},
     {"OneOfAnInputStays", [] {
        return graph_of({zeros({3, 4})}, {}, [](In x, In) { return exp(to(x[0], DType::bf16)); });
      }}});

}  // namespace epilogue::testing::keep_casts_test
