export {
  type Client,
  type ClientOptions,
  createClient,
  type PaidResponse,
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
export type { LimitOptions, ProposedPayment } from './client/limits.ts'
export type { OtherSellers } from './client/otherSellers.ts'
export type { Payer, PayerWallet } from './client/payer.ts'
export type { PaymentOptions } from './client/paymentFlow.ts'
export type { PaidReceipt } from './client/receipts.ts'
export type { Settlement } from './client/settlement.ts'
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
export type { OpenTab, TabOptions } from './client/tabs.ts'
export { type PayingFetch, wrapFetch } from './client/wrapFetch.ts'
export { BaseError, type ErrorCode, ProtocolError } from './protocol/errors.ts'
export { type NetworkName, networkNames, networks } from './protocol/networks.ts'
