import { createApp } from '@tollkeeper/api/app'
import { rotateReceiptKeys, toReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { createLogger } from '@tollkeeper/runtime/log'
import { testGatewaySettings } from './gateway.ts'
import { type KeeperStack, platformWallet } from './keeperStack.ts'

/** Opens a gateway on the database of a keeper stack. */
export function createStackGateway(stack: KeeperStack, { publicQueue = true } = {}) {
  return createApp({
    sql: stack.database,
    networks: [stack.served],
    settings: { ...testGatewaySettings, platformWallet, publicQueue },
    receiptKeys: toReceiptKeys(rotateReceiptKeys(undefined)),
    log: createLogger('test', 'error'),
  })
}
