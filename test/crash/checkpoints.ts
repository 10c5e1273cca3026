import { type CheckpointName, checkpoints } from '@tollkeeper/keeper/settings/checkpoints'

/** The checkpoints from one to another, in the order in which the settlement path comes to them. */
export function stretch(first: CheckpointName, last: CheckpointName): CheckpointName[] {
  return checkpoints.slice(checkpoints.indexOf(first), checkpoints.indexOf(last) + 1)
}

/** Where only a keeper comes that is somebody's facilitator: facilitator.test.ts. */
export const ofSubmissions = stretch('before-submission-recorded', 'before-submission-answer')
/** Where tabs are closed and taken into the ledger: packages/ledger/tabs/upkeep.test.ts. What the gateway does before: tabs.test.ts. */
export const ofTabs = stretch('after-tabs-closed', 'after-tab-taken')
export const ofX402 = stretch('after-verify-recorded', 'before-settle-answer')
