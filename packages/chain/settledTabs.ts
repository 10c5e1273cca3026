// The SDK contains the rule for reading settled tabs, so that `audit`, which doesn't trust the gateway, reads the logs in the same way.
export {
  batchSettledTopic as batchSettled,
  readTabBatches,
  type SettledTabBatch as TabBatch,
} from '@tollkeeper/sdk/protocol/tabBatches'
export type { SettledTab } from '@tollkeeper/sdk/protocol/tabSettlement'
