import { readEvidence } from '@tollkeeper/chain/evidence'
import { createLogger } from '@tollkeeper/runtime/log'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { expect, test } from 'vitest'
import { call, openShop, pay } from '../test/support/gateway.ts'
import { setIndexedHead } from '../test/support/indexTables.ts'
import { until } from '../test/support/until.ts'
import { sendDirectly } from '../test/support/usdc.ts'
import { useGateway } from '../test/support/useGateway.ts'
import { startBackgroundWork } from './backgroundWork.ts'

const gateway = useGateway()

test('behavior: what strangers settle shows although no keeper runs', async () => {
  const { app, database, served, settings } = gateway
  const { chainId } = served.network
  const { paymentId, payloads } = await pay(gateway, await openShop(app))
  for (const payload of payloads) {
    const hash = await sendDirectly(gateway, parsePayload(payload))
    const receipt = await served.client.waitForTransactionReceipt({ hash })
    const { timestamp } = await served.client.getBlock({ blockNumber: receipt.blockNumber })
    // What Ponder would write of it.
    for (const event of readEvidence(receipt, served, timestamp))
      await database`
        insert into indexer.authorization (chain_id, token, authorizer, nonce, state, recipient, value, tx_hash, log_index,
          block_number, block_hash, block_time)
        values (${chainId}, ${served.token}, ${event.authorizer}, ${event.nonce}, ${event.state}, ${event.recipient},
          ${event.value}, ${event.txHash}, ${event.logIndex}, ${event.blockNumber}, ${event.blockHash}, ${event.blockTime})`
    await setIndexedHead(database, {
      chainId,
      blockNumber: Number(receipt.blockNumber),
      blockTime: Number(timestamp),
    })
  }
  const status = async () => (await call(app, 'GET', `/payments/${paymentId}`)).body.payment_status
  const work = startBackgroundWork({
    sql: database,
    networks: [served],
    settings,
    log: createLogger('test', 'error'),
  })
  try {
    expect(await status()).toBe('verified')
    await database`update record_head set read_at = now() - interval '11 seconds'`
    await until('the record has it', async () => (await status()) === 'settled')
  } finally {
    await work.close()
  }
})
