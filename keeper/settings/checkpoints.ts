/**
 * Runs at a named point of the settlement path. In production it does nothing; a crash test ends the process there.
 * There is a checkpoint before or after every await at which a crash could matter.
 */
export type Checkpoint = (name: CheckpointName) => Promise<void> | void

export const checkpoints = [
  'before-claim',
  'after-claim',
  'before-simulation',
  'after-simulation',
  'before-write-ahead',
  'after-write-ahead',
  'before-broadcast',
  'after-broadcast',
  'after-broadcast-recorded',
  'before-replacement-write-ahead',
  'after-replacement-write-ahead',
  'after-replacement-broadcast',
  'before-mined-recorded',
  'after-mined-recorded',
  'before-end',
  'after-end',
  'before-reorg-recorded',
  'after-reorg-recorded',
  'before-evidence-recorded',
  'after-evidence-recorded',
  'before-finalization',
  'after-finalization',
  'before-reconcile',
  'after-reconcile',
  'before-finalizations-undone',
  'after-finalizations-undone',
  'before-submission-recorded',
  'after-submission-recorded',
  'before-submission-answer',
  'after-verify-recorded',
  'after-settle-recorded',
  'before-settle-answer',
  'after-tabs-closed',
  'after-tab-taken',
] as const
export type CheckpointName = (typeof checkpoints)[number]
