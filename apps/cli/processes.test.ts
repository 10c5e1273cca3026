import { describe, expect, test } from 'vitest'
import { keeperEnvironment } from './processes.ts'

describe('keeperEnvironment', () => {
  test('default: sets only the given variables', () => {
    expect(keeperEnvironment({})).toEqual({})
  })

  test('args: an independent keeper needs a gateway, a node and a key', () => {
    const flags = {
      gateway: 'https://g.example',
      rpc: 'https://r.example',
      network: 'base-sepolia',
      keyFile: 'k',
    } as const
    expect(keeperEnvironment(flags)).toEqual({
      KEEPER_GATEWAY_URL: 'https://g.example',
      NETWORKS: 'base-sepolia',
      RPC_URL_BASE_SEPOLIA: 'https://r.example',
      KEEPER_KEY_FILE: 'k',
    })
  })

  test('error: rejects a node without a network', () => {
    expect(() => keeperEnvironment({ rpc: 'https://r.example' })).toThrow(/--network/)
  })
})
