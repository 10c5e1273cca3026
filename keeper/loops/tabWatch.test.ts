import { createKeeper } from '@tollkeeper/keeper/keeper'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { createLogger } from '@tollkeeper/runtime/log'
import { expect, test } from 'vitest'
import { keeperDefaults } from '../../test/support/keeperDefaults.ts'
import { checksOf } from '../../test/support/keeperScenes.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway } from '../../test/support/useGateway.ts'

const gateway = useGateway()

test('default: open tabs are watched in a separate loop, so that a large number of them does not delay other work', async () => {
  const keeper = createKeeper({
    ...keeperDefaults,
    tabs: { ...keeperDefaults.tabs, database: onOnePostgres(gateway.database) },
    database: gateway.database,
    networks: [gateway.served],
    accounts: [],
    log: createLogger('keeper', 'silent'),
    now: () => new Date(),
    randomBytes32: () => randomHex(32),
    holder: 'test',
  })
  keeper.start()
  try {
    expect(await checksOf(keeper)).toMatchObject({
      'loop tabs': true,
      'loop tab watch localhost': true,
      'loop upkeep localhost': true,
    })
  } finally {
    await keeper.stop()
  }
})
