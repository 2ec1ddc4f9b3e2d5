// SPDX-License-Identifier: Apache-2.0
// The words of flags about training, and what they mean to a trainer.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "epilogue/train.h"

namespace epilogue::tool {

template <class Choice>
using Words = std::map<std::string_view, Choice>;

inline const Words<train::Optimizer> kOptimizers = {{"adamw", train::Optimizer::adamw},
                                                    {"adam", train::Optimizer::adam},
                                                    {"sgd", train::Optimizer::sgd}};
inline const Words<train::Schedule> kSchedules = {{"constant", train::Schedule::constant},
                                                  {"cosine", train::Schedule::cosine},
                                                  {"step", train::Schedule::step}};
inline const Words<train::Precision> kPrecisions = {{"none", train::Precision::f32},
                                                    {"bf16", train::Precision::bf16},
                                                    {"f16", train::Precision::f16}};
inline const Words<train::Mode> kModes = {{"eager", train::Mode::eager},
                                          {"compile", train::Mode::compile}};
inline const Words<Tune> kTunes = {{"model", Tune::model}, {"measure", Tune::measure}};

}  // namespace epilogue::tool
