// The rule is in the SDK, so that the auditor, which doesn't trust the gateway, reads the same logs in the same way.
export {
  batchSettledTopic as batchSettled,
  readTabBatches,
  type SettledTabBatch as TabBatch,
} from '@tollkeeper/sdk/protocol/tabBatches'
export type { SettledTab } from '@tollkeeper/sdk/protocol/tabSettlement'
