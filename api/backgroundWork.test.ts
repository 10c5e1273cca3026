import { readEvidence } from '@tollkeeper/chain/evidence'
import { createLogger } from '@tollkeeper/runtime/log'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { expect, test } from 'vitest'
import { call, openShop, pay } from '../test/support/gateway.ts'
import { setIndexedHead } from '../test/support/indexTables.ts'
import { openTab } from '../test/support/tabBuyer.ts'
import { until } from '../test/support/until.ts'
import { sendDirectly } from '../test/support/usdc.ts'
import { useGateway } from '../test/support/useGateway.ts'
import { startBackgroundWork } from './backgroundWork.ts'

const gateway = useGateway()

test('behavior: a payment is shown as settled if a third party’s keeper has settled it, even if our own keeper does not run', async () => {
  const { app, database, served, settings } = gateway
  const { chainId } = served.network
  const { paymentId, payloads } = await pay(gateway, await openShop(app))
  for (const payload of payloads) {
    const hash = await sendDirectly(gateway, parsePayload(payload))
    const receipt = await served.client.waitForTransactionReceipt({ hash })
    const { timestamp } = await served.client.getBlock({ blockNumber: receipt.blockNumber })
    // Writes what Ponder would index.
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
    await until('the record contains the settlement', async () => (await status()) === 'settled')
  } finally {
    await work.close()
  }
})

test('behavior: a tab is imported into the ledger right after its buyer has closed it, without waiting for the round that runs every 15 seconds', async () => {
  const { database: sql, served, settings } = gateway
  const work = startBackgroundWork({
    sql,
    networks: [served],
    settings,
    log: createLogger('test', 'error'),
  })
  try {
    const app = gateway.withOptions(work.shared)
    const tab = openTab({ ...gateway, app }, await gateway.buyer(5_000_000n))
    expect((await tab.buy(await openShop(app))).status).toBe(200)
    expect((await tab.close()).status).toBe(200)
    await until(
      'the ledger has imported the tab',
      async () => (await tab.read()).body.isTaken === true,
      10_000,
    )
  } finally {
    await work.close()
  }
})
