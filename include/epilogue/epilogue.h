// SPDX-License-Identifier: Apache-2.0
// The engine half in one include: tensors, ops, autograd, modules, compile(), training, the
// profiler. Each header of include/epilogue also stands alone.
#pragma once

#include "epilogue/amp.h"
#include "epilogue/autograd.h"
#include "epilogue/checkpoint.h"
#include "epilogue/compile.h"
#include "epilogue/compile_step.h"
#include "epilogue/csv.h"
#include "epilogue/data.h"
#include "epilogue/device.h"
#include "epilogue/dims.h"
#include "epilogue/dtype.h"
#include "epilogue/fused.h"
#include "epilogue/fusion_choices.h"
#include "epilogue/io.h"
#include "epilogue/memory.h"
#include "epilogue/mlp_gradient.h"
#include "epilogue/module.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "epilogue/predictor.h"
#include "epilogue/profiler.h"
#include "epilogue/runtime.h"
#include "epilogue/tensor.h"
#include "epilogue/train.h"
