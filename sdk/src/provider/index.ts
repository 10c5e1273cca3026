export { type ErrorCode, ProtocolError, TollkeeperError } from '../protocol/errors.ts'
export {
  createProviderClient,
  type ProviderClient,
  type ProviderClientOptions,
  type RegisterProviderOptions,
  registerProvider,
} from './createProviderClient.ts'
export { GatewayError, type GatewayErrorCode, type GatewayErrorOptions } from './errors.ts'
export type { ProviderResources } from './generated/resources.ts'
export type * from './generated/types.ts'
export type { List } from './list.ts'
export type { Call, ChangeOptions, RequestOptions, TransportOptions } from './transport.ts'
export {
  type UnrecognizedMessage,
  type UnwrapOptions,
  unwrapWebhook,
  type WebhookEvent,
  type WebhookHeaders,
} from './webhooks.ts'
