// Names of fields in the JSON that Skein writes and reads again: metrics.jsonl, summary.json,
// run.json, --json and what the pages show, which spell them in JavaScript; a test compares.
#pragma once

namespace skein::field {

// Of a line of metrics.jsonl: what it is, and the kinds that there are.
inline constexpr const char* kKind = "kind";
inline constexpr const char* kRunKind = "run";  // the run has started
inline constexpr const char* kStepKind = "step";
inline constexpr const char* kEvaluationKind = "evaluation";
inline constexpr const char* kLeaderKind = "leader";  // another worker writes for all

// How far a run has come.
inline constexpr const char* kStep = "step";
inline constexpr const char* kSamples = "samples";
inline constexpr const char* kSeconds = "seconds";

// Of a step, and of a whole run on the mean.
inline constexpr const char* kLoss = "loss";
inline constexpr const char* kAccuracy = "accuracy";
inline constexpr const char* kLearningRate = "learning_rate";
inline constexpr const char* kIterationMs = "iteration_ms";
inline constexpr const char* kExposedCommMs = "exposed_comm_ms";
inline constexpr const char* kSamplesPerSecond = "samples_per_second";
inline constexpr const char* kConsensusDistance = "consensus_distance";

// Which run.
inline constexpr const char* kRunId = "run_id";
inline constexpr const char* kStarted = "started";
inline constexpr const char* kResumedFrom = "resumed_from";
inline constexpr const char* kStrategy = "strategy";
inline constexpr const char* kWorkers = "workers";
inline constexpr const char* kFabric = "fabric";
inline constexpr const char* kModel = "model";
inline constexpr const char* kData = "data";
inline constexpr const char* kDevice = "device";
inline constexpr const char* kPrecision = "precision";
inline constexpr const char* kBudget = "budget";
inline constexpr const char* kConfig = "config";
inline constexpr const char* kParameters = "parameters";

// Of a worker.
inline constexpr const char* kPerWorker = "per_worker";
inline constexpr const char* kRank = "rank";
inline constexpr const char* kLost = "lost";
inline constexpr const char* kMicroBatches = "micro_batches";
inline constexpr const char* kBusyFraction = "busy_fraction";
inline constexpr const char* kWaitingFraction = "waiting_fraction";
inline constexpr const char* kBytesSent = "bytes_sent";
inline constexpr const char* kDeviceMemoryBytes = "device_memory_bytes";
inline constexpr const char* kFigures = "figures";  // what its strategy says

// Of a whole run.
inline constexpr const char* kFinished = "finished";
inline constexpr const char* kIterations = "iterations";
inline constexpr const char* kStartupSeconds = "startup_seconds";
inline constexpr const char* kEvaluationSeconds = "evaluation_seconds";
inline constexpr const char* kCheckpointSeconds = "checkpoint_seconds";
inline constexpr const char* kFlushSeconds = "flush_seconds";
inline constexpr const char* kChannelsLast = "channels_last";
inline constexpr const char* kResumedSamples = "resumed_samples";
inline constexpr const char* kTargetAccuracy = "target_accuracy";
inline constexpr const char* kSecondsToTarget = "seconds_to_target";

}  // namespace skein::field
