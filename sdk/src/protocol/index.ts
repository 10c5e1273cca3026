export { formatUsdc, parseDollars, parseUsdc } from './amount.ts'
export {
  type AuthorizationHeader,
  encodeAuthorizationHeader,
  parseAuthorizationHeader,
} from './authorizationHeader.ts'
export {
  boundNonce,
  type Challenge,
  type ChallengeDiscovery,
  feeNonce,
  maxTimeoutSeconds,
  type PaymentRequirements,
  parseChallenge,
  type TabChallenge,
} from './challenge.ts'
export {
  type Authorization,
  authorizationDigest,
  domainSeparator,
  type Eip712Domain,
  eip712Domain,
  receiveWithAuthorizationTypes,
  transferWithAuthorizationTypes,
} from './eip3009.ts'
export {
  BaseError,
  type ErrorCode,
  errorCodes,
  isErrorCode,
  ProtocolError,
  TollkeeperError,
} from './errors.ts'
export {
  attenuateMacaroon,
  type Caveats,
  type Hmac,
  type HolderCaveats,
  type MacaroonRequest,
  type MacaroonSecret,
  type MacaroonTerms,
  type MintedCaveats,
  mintMacaroon,
  type ParsedMacaroon,
  parseMacaroon,
  verifyMacaroon,
} from './macaroon.ts'
export { defineNetwork, type NetworkDefinition } from './networkDefinition.ts'
export {
  type GasModel,
  isNetworkName,
  type Network,
  type NetworkName,
  networkByChainId,
  networkByName,
  networkNames,
  networks,
  type ShippedNetworkName,
} from './networks.ts'
export { decodePass, encodePassHeader, type PassClaims, type PassProof, passProofData } from './pass.ts'
export type { PassTerms } from './passTerms.ts'
export { encodePayload, parsePayload, type SignedAuthorization } from './payload.ts'
export { type PaymentStatus, paymentStatuses } from './paymentStatus.ts'
export {
  decodeReceipt,
  parseReceiptClaims,
  type ReceiptAuthorization,
  type ReceiptClaims,
  type ReceiptRefund,
  type ReceiptTab,
  zeroHash,
} from './receipt.ts'
export { maxRefunds, refundNonce } from './refund.ts'
export {
  encodeSplit,
  type SplitterShares,
  type SplitterTerms,
  splitterAddress,
  splitterOf,
  splitterShares,
} from './splitter.ts'
export {
  encodeTabPayload,
  maxTabLines,
  parseTabPayload,
  type TabLine,
  type TabPayload,
  type TabPayment,
  type TabState,
  type TabTerms,
  tabAuthorization,
  tabNonce,
  tabSplit,
} from './tab.ts'
export {
  acceptOnTab,
  chargedOnTab,
  chargeOnTab,
  closeTab,
  type GatewayTab,
  type GatewayTabLine,
  type GatewayTabRequest,
  type GatewayTabTerms,
  type TabDecision,
  type TabPurchase,
  type TabVerdict,
  tabRefusals,
} from './tabRule.ts'
export { effectiveRate, type FeeSchedule, type Split, splitPrice, type Tier } from './tier.ts'
export {
  encodePaymentHeader,
  type PaymentRequired,
  type PaymentRequirementsV2,
  type PaymentResponse,
  parsePaymentHeader,
  readTabResponse,
  type TabRequirements,
  type TabResponse,
  toPaymentRequired,
  type X402Payment,
} from './x402.ts'
