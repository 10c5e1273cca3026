import { type CheckpointName, checkpoints } from '@tollkeeper/keeper/settings/checkpoints'

/** Returns the checkpoints from `first` to `last`, in the order of the settlement path. */
export function stretch(first: CheckpointName, last: CheckpointName): CheckpointName[] {
  return checkpoints.slice(checkpoints.indexOf(first), checkpoints.indexOf(last) + 1)
}

/** Checkpoints that a keeper reaches only if callers use `/submit`. facilitator.test.ts covers them. */
export const ofSubmissions = stretch('before-submission-recorded', 'before-submission-answer')
/**
 * Checkpoints at which the keeper closes tabs and adds them to the ledger. packages/ledger/tabs/upkeep.test.ts covers these checkpoints.
 * tabs.test.ts covers the gateway's earlier steps.
 */
export const ofTabs = stretch('after-tabs-closed', 'after-tab-taken')
export const ofX402 = stretch('after-verify-recorded', 'before-settle-answer')
