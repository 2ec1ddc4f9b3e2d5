// SPDX-License-Identifier: Apache-2.0
// The list of all findings: a declaration and a place in the order for each. A finding is described
// in the file of its id; docs/findings.md is made of the descriptions.
#pragma once

#include "explain/findings/finding.h"

namespace epilogue::trace {

extern const ExplanationRule kVerdictRule;
extern const ExplanationRule kLostDataRule;
extern const ExplanationRule kProfilerCostRule;
extern const ExplanationRule kLaunchCostRule;
extern const ExplanationRule kSyncRule;
extern const ExplanationRule kDataLoaderRule;
extern const ExplanationRule kPageableCopiesRule;
extern const ExplanationRule kExposedCollectivesRule;
extern const ExplanationRule kNoLaunchOpsRule;
extern const ExplanationRule kSlowStepsRule;
extern const ExplanationRule kPageFaultsRule;
extern const ExplanationRule kFusionRule;
extern const ExplanationRule kNoTensorCoresRule;
extern const ExplanationRule kWaveQuantisationRule;
extern const ExplanationRule kSlowProductRule;
extern const ExplanationRule kGraphBreaksRule;
extern const ExplanationRule kOccupancyArtefactRule;
extern const ExplanationRule kMemoryPeakRule;
extern const ExplanationRule kIdleGapRule;
extern const ExplanationRule kSlowCallRule;
extern const ExplanationRule kDenormalValuesRule;
extern const ExplanationRule kContentionRule;
extern const ExplanationRule kSlowDtypeRule;
extern const ExplanationRule kMisalignedProductRule;
extern const ExplanationRule kUnfusedAttentionRule;
extern const ExplanationRule kUnfusedOptimizerRule;
extern const ExplanationRule kUnfusedNormRule;
extern const ExplanationRule kUnfusedGeluRule;
extern const ExplanationRule kUnfusedRotaryRule;
extern const ExplanationRule kFallbackConvolutionRule;
extern const ExplanationRule kBetweenOpsRule;
extern const ExplanationRule kDispatchRule;
extern const ExplanationRule kBandwidthProductsRule;
extern const ExplanationRule kDoublePrecisionRule;
extern const ExplanationRule kCopiesRule;
extern const ExplanationRule kBooleanMaskRule;
extern const ExplanationRule kRecompilationRule;
extern const ExplanationRule kHostOverheadRule;
extern const ExplanationRule kNanChecksRule;
extern const ExplanationRule kTrainingNormsRule;
extern const ExplanationRule kPlainAttentionRule;
extern const ExplanationRule kCallLoopRule;
extern const ExplanationRule kWorkLoopRule;
extern const ExplanationRule kRecomputedForwardRule;
extern const ExplanationRule kRebuiltConstantRule;
extern const ExplanationRule kUnevenCallsRule;
extern const ExplanationRule kGrownSequenceRule;
extern const ExplanationRule kUnreadGradientRule;
extern const ExplanationRule kConstantMatrixRule;
extern const ExplanationRule kUnfoldedConvolutionRule;
extern const ExplanationRule kCutResultRule;
extern const ExplanationRule kUntrainedForwardRule;
extern const ExplanationRule kRepeatedBackwardRule;
extern const ExplanationRule kBesideTrainingRule;
extern const ExplanationRule kRepeatedModuleRule;
extern const ExplanationRule kSmallPassesRule;
extern const ExplanationRule kUnreadGraphRule;
extern const ExplanationRule kCutGradientsRule;
extern const ExplanationRule kDearerOrderRule;
extern const ExplanationRule kBuiltMatrixRule;
extern const ExplanationRule kAllExpertsRule;
extern const ExplanationRule kPaddingRule;
extern const ExplanationRule kAllPairsRule;
extern const ExplanationRule kOverlappingWindowsRule;
extern const ExplanationRule kMadeWeightRule;
extern const ExplanationRule kHandPenaltyRule;
extern const ExplanationRule kCompositeOpRule;
extern const ExplanationRule kRoundTripRule;
extern const ExplanationRule kRepeatedTransformRule;
extern const ExplanationRule kRepeatedSoftmaxRule;
extern const ExplanationRule kOrderedPairsRule;
extern const ExplanationRule kRepeatedChainRule;
extern const ExplanationRule kSharedPrefixRule;
extern const ExplanationRule kRepeatedRunsRule;
extern const ExplanationRule kWideCountRule;
extern const ExplanationRule kParallelEdgesRule;
extern const ExplanationRule kPhaseApartRule;
extern const ExplanationRule kGramPairsRule;
extern const ExplanationRule kPooledAgainRule;
extern const ExplanationRule kLateReductionRule;
extern const ExplanationRule kLongerSideRule;
extern const ExplanationRule kTwoSidedProductRule;
extern const ExplanationRule kWeightedRowsRule;
extern const ExplanationRule kRepeatedProjectionRule;
extern const ExplanationRule kShorterFormRule;
extern const ExplanationRule kResizedTwiceRule;
extern const ExplanationRule kOuterLayerRule;
extern const ExplanationRule kTablePenaltyRule;
extern const ExplanationRule kAllTriplesRule;
extern const ExplanationRule kLeftRowsRule;
extern const ExplanationRule kSpreadTableRule;
extern const ExplanationRule kWideSampleRule;
extern const ExplanationRule kChangedPartRule;
extern const ExplanationRule kGrownSetRule;
extern const ExplanationRule kEachOrderRule;
extern const ExplanationRule kInputGradientRule;
extern const ExplanationRule kKeptOrderRule;
extern const ExplanationRule kUnreadForwardRule;
extern const ExplanationRule kPooledRowsRule;
extern const ExplanationRule kDenseTargetRule;
extern const ExplanationRule kStuffedZerosRule;
extern const ExplanationRule kSwappedTimeRule;
extern const ExplanationRule kValueChecksRule;
extern const ExplanationRule kShiftedSumsRule;
extern const ExplanationRule kWidePoolsRule;
extern const ExplanationRule kSiblingModulesRule;
extern const ExplanationRule kGatheredProductRule;
extern const ExplanationRule kMaskedKernelRule;
extern const ExplanationRule kIdleGradientsRule;
extern const ExplanationRule kGradientPenaltyRule;
extern const ExplanationRule kAsideFunctionRule;
extern const ExplanationRule kPiledHooksRule;
extern const ExplanationRule kFixedOperandRule;
extern const ExplanationRule kSmallCollectivesRule;
extern const ExplanationRule kRepeatedReductionRule;
extern const ExplanationRule kSentBuffersRule;
extern const ExplanationRule kLongOpRule;
extern const ExplanationRule kMainWorkRule;

// Findings of equal severity and saving keep this order.
inline constexpr const ExplanationRule* kExplanationRules[] = {
    &kVerdictRule,
    &kLostDataRule,
    &kProfilerCostRule,
    &kLaunchCostRule,
    &kSyncRule,
    &kDataLoaderRule,
    &kPageableCopiesRule,
    &kExposedCollectivesRule,
    &kNoLaunchOpsRule,
    &kSlowStepsRule,
    &kPageFaultsRule,
    // After page-faults, whose time it leaves out.
    &kFusionRule,
    &kNoTensorCoresRule,
    &kWaveQuantisationRule,
    &kGraphBreaksRule,
    &kOccupancyArtefactRule,
    &kMemoryPeakRule,
    &kIdleGapRule,
    &kSlowCallRule,
    // Before thread-contention, whose signs denormal numbers have, too.
    &kDenormalValuesRule,
    &kContentionRule,
    &kSlowDtypeRule,
    &kMisalignedProductRule,
    // After those that say why a product is slow.
    &kSlowProductRule,
    &kUnfusedAttentionRule,
    &kUnfusedOptimizerRule,
    &kUnfusedNormRule,
    &kUnfusedGeluRule,
    &kUnfusedRotaryRule,
    &kFallbackConvolutionRule,
    &kBetweenOpsRule,
    &kDispatchRule,
    &kBandwidthProductsRule,
    &kDoublePrecisionRule,
    &kCopiesRule,
    &kBooleanMaskRule,
    &kRecompilationRule,
    &kHostOverheadRule,
    &kNanChecksRule,
    &kTrainingNormsRule,
    &kPlainAttentionRule,
    // Before call-loop, which leaves loops of collectives to it.
    &kSmallCollectivesRule,
    &kRepeatedReductionRule,
    &kSentBuffersRule,
    &kCallLoopRule,
    &kWorkLoopRule,
    &kRecomputedForwardRule,
    &kRebuiltConstantRule,
    &kUnevenCallsRule,
    &kGrownSequenceRule,
    &kUnreadGradientRule,
    &kConstantMatrixRule,
    &kUnfoldedConvolutionRule,
    &kCutResultRule,
    &kRepeatedBackwardRule,
    &kRepeatedModuleRule,
    &kSmallPassesRule,
    &kUnreadGraphRule,
    &kCutGradientsRule,
    &kDearerOrderRule,
    &kBuiltMatrixRule,
    &kAllExpertsRule,
    &kPaddingRule,
    &kAllPairsRule,
    &kOverlappingWindowsRule,
    &kMadeWeightRule,
    &kHandPenaltyRule,
    &kCompositeOpRule,
    &kRoundTripRule,
    &kRepeatedTransformRule,
    &kRepeatedSoftmaxRule,
    &kOrderedPairsRule,
    &kRepeatedChainRule,
    &kSharedPrefixRule,
    &kRepeatedRunsRule,
    &kWideCountRule,
    &kParallelEdgesRule,
    &kPhaseApartRule,
    &kGramPairsRule,
    &kPooledAgainRule,
    &kLateReductionRule,
    &kLongerSideRule,
    &kTwoSidedProductRule,
    &kWeightedRowsRule,
    &kRepeatedProjectionRule,
    &kShorterFormRule,
    &kResizedTwiceRule,
    &kOuterLayerRule,
    &kTablePenaltyRule,
    &kAllTriplesRule,
    &kLeftRowsRule,
    &kSpreadTableRule,
    &kWideSampleRule,
    &kChangedPartRule,
    &kGrownSetRule,
    &kEachOrderRule,
    &kInputGradientRule,
    &kKeptOrderRule,
    &kUnreadForwardRule,
    &kPooledRowsRule,
    &kDenseTargetRule,
    &kStuffedZerosRule,
    &kSwappedTimeRule,
    &kValueChecksRule,
    &kShiftedSumsRule,
    &kWidePoolsRule,
    &kSiblingModulesRule,
    &kGatheredProductRule,
    &kMaskedKernelRule,
    &kIdleGradientsRule,
    &kGradientPenaltyRule,
    &kAsideFunctionRule,
    &kPiledHooksRule,
    &kFixedOperandRule,
    // After those that say what the work is.
    &kUntrainedForwardRule,
    &kBesideTrainingRule,
    // Last: about ops that no other finding names.
    &kLongOpRule,
    &kMainWorkRule,
};

extern const RanksRule kWorldSizeUnknownRule;
extern const RanksRule kMissingRanksRule;
extern const RanksRule kLeftOutFilesRule;
extern const RanksRule kTruncatedRankRule;
extern const RanksRule kUnmatchedCollectivesRule;
extern const RanksRule kSmallCollectivesOfRanksRule;
extern const RanksRule kRepeatedReductionOfRanksRule;
extern const RanksRule kSentBuffersOfRanksRule;
extern const RanksRule kRankTurnsRule;
extern const RanksRule kCollectiveCostRule;
extern const RanksRule kStragglerRule;
extern const RanksRule kPersistentStragglerRule;
extern const RanksRule kChangingStragglersRule;
extern const RanksRule kCommunicationOverlapRule;
extern const RanksRule kPipelineBubblesRule;

inline constexpr const RanksRule* kRanksRules[] = {
    &kWorldSizeUnknownRule,
    &kMissingRanksRule,
    &kLeftOutFilesRule,
    &kTruncatedRankRule,
    &kUnmatchedCollectivesRule,
    &kSmallCollectivesOfRanksRule,
    &kRepeatedReductionOfRanksRule,
    &kSentBuffersOfRanksRule,
    // Before those that name who is waited for.
    &kRankTurnsRule,
    &kCollectiveCostRule,
    &kStragglerRule,
    &kPersistentStragglerRule,
    &kChangingStragglersRule,
    &kCommunicationOverlapRule,
    &kPipelineBubblesRule,
};

}  // namespace epilogue::trace
