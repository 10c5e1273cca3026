export { toolResource } from '../protocol/toolResource.ts'
export { type PayingMcpClient, type PayingMcpOptions, payingMcpClient } from './payingMcpClient.ts'
export { type PaidExtra, type PaidServer, requirePayment } from './requirePayment.ts'
export type { ToolGateOptions } from './toolGate.ts'
