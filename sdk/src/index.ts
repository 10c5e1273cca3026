export {
  type Client,
  type ClientOptions,
  createClient,
  type PaidReceipt,
  type PaidResponse,
  type RequestOptions,
} from './client/createClient.ts'
export {
  ChallengeRefusedError,
  ClientError,
  type ClientErrorCode,
  HttpError,
  InsufficientBalanceError,
  InsufficientGasError,
  NetworkError,
  PaymentReplayedError,
  PaymentVerificationError,
  RequestAbortedError,
  RequestTimeoutError,
  SettlementError,
} from './client/errors.ts'
export type { Payer, SignedPayment } from './client/payment.ts'
export type { Settlement } from './client/settlement.ts'
export { BaseError, type ErrorCode, ProtocolError } from './protocol/errors.ts'
export { type NetworkName, networkNames, networks } from './protocol/networks.ts'
