import type { GatewaySettings } from '@tollkeeper/api/http/settings'
import { afterAll, afterEach, beforeAll } from 'vitest'
import { openShop, type Shop, startGateway, type TestGateway } from './gateway.ts'

/**
 * Calls {@link startGateway} for the tests of a file, and closes the gateway after them. Each test begins at the
 * real time.
 */
export function useGateway(settings?: Partial<GatewaySettings>): TestGateway {
  const gateway = {} as TestGateway
  beforeAll(async () => {
    Object.assign(gateway, await startGateway(settings))
  })
  afterEach(() => gateway.setNow?.(null))
  afterAll(() => gateway.close?.())
  return gateway
}

/**
 * Opens a shop ({@link openShop}) for the tests of a file. If `before` is vitest's `beforeEach`, opens a new shop for
 * each test.
 */
export function useShop(gateway: TestGateway, before = beforeAll): Shop {
  const shop = {} as Shop
  before(async () => {
    Object.assign(shop, await openShop(gateway.app))
  })
  return shop
}
