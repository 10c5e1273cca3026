import type { PayerSignatures } from '@tollkeeper/chain/payerSignatures'
import type { Catalogue } from '@tollkeeper/ledger/discovery/catalogue'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { TabStore } from '@tollkeeper/ledger/tabs/tabStore'
import type { Loop } from '@tollkeeper/runtime/repeat'
import type { AddressGuard } from './http/addressGuard.ts'
import type { GatewaySettings } from './http/settings.ts'
import type { ReceiptKeys } from './payments/receipts/keys.ts'
import type { RecordedHeads } from './payments/records/recordedHeads.ts'
import type { GatewayNetworks } from './registry/networks.ts'
import type { Offers } from './registry/offers.ts'
import type { Mailer } from './telling/mailer.ts'

/** All that routes are mounted with; each mounting function's signature names the part that it takes. */
export type RouteOptions = {
  sql: Database
  tabStore: TabStore
  networks: GatewayNetworks
  offers: Offers
  /** Null: nothing is listed here. */
  catalogue: Catalogue | null
  heads: RecordedHeads
  receiptKeys: ReceiptKeys
  settings: GatewaySettings
  payerSignatures: PayerSignatures
  /** For webhooks, and for providers' upstreams. */
  addressGuard: AddressGuard
  upstreamGuard: AddressGuard
  /** Null: this gateway sends no mail. */
  mailer: Mailer | null
  /** Background loops, for `/readyz`. */
  loops: readonly Loop[]
  /** Unix milliseconds. */
  now: () => number
}
