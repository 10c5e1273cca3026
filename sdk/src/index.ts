export {
  type Client,
  type ClientOptions,
  createClient,
  type PaidResponse,
  type QuoteOptions,
  type RequestOptions,
} from './client/createClient.ts'
export {
  type ChallengeRefusal,
  ChallengeRefusedError,
  ClientError,
  type ClientErrorCode,
  HttpError,
  InsufficientBalanceError,
  InsufficientGasError,
  NetworkError,
  type PaymentOutcome,
  PaymentReplayedError,
  PaymentVerificationError,
  RequestAbortedError,
  RequestTimeoutError,
  SettlementError,
} from './client/errors.ts'
export type { PaymentLimits, ProposedPayment } from './client/limits.ts'
export type { OtherSellersOptions } from './client/otherSellers.ts'
export type { PassStore, SavedPass } from './client/passStore.ts'
export type { Payer, PayerWallet } from './client/payer.ts'
export type { PriceSplit } from './client/payment.ts'
export type { ClientStores, PaymentOptions } from './client/paymentFlow.ts'
export type { PaymentStore, SavedPayment } from './client/paymentStore.ts'
export type { Quote } from './client/quote.ts'
export type { PaidReceipt } from './client/receipts.ts'
export type { Settlement, WaitOptions } from './client/settlement.ts'
export type {
  PaymentHeader,
  SellerReport,
  SignedExactPayment,
  SignedPayment,
  SignedSellerPayment,
  SignedTabPayment,
} from './client/signedPayment.ts'
export {
  createSpendingMemory,
  type DailyLimits,
  type Overrun,
  type Reservation,
  type Spending,
  type SpendingStore,
} from './client/spending.ts'
export type { SavedTab, TabStore } from './client/tabStore.ts'
export type { OpenTab } from './client/tabs.ts'
export { type PayingFetch, type WrapFetchOptions, wrapFetch } from './client/wrapFetch.ts'
export { type ErrorCode, ProtocolError, TollkeeperError } from './protocol/errors.ts'
export { type NetworkName, networkNames, networks } from './protocol/networks.ts'
