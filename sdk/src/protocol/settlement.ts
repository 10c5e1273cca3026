// The calls and events of the settlement contracts, which keepers and indexers need in addition to `@tollkeeper/sdk/protocol`.

export {
  type Batch,
  decodeOutcomes,
  decodeSettle,
  type EncodedSettle,
  encodeSettle,
  encodeSettleAuthorizations,
  type Outcome,
  type PackedAuthorization,
  type Payment,
  type PaymentOutcome,
  type SettlementItem,
  type Sweep,
  settlementItems,
  type Trigger,
  triggerCodes,
} from './batchSettlement.ts'
export { readTabBatches, type SettledTabBatch, type TransactionLog } from './tabBatches.ts'
export {
  decodeSettleTabs,
  decodeTabsSettled,
  type EncodedSettleTabs,
  encodeSettleTabs,
  type PackedTab,
  type SettledTab,
  type SignedTab,
  type TabBatch,
} from './tabSettlement.ts'
