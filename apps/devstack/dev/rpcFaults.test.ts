import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type RpcFaults, startRpcFaults } from './rpcFaults.ts'

// The server behind the proxy isn't a real node. It only records the calls that reach it, and gives the same response to all of them.

let node: Server
let faults: RpcFaults
let reached: string[] = []
beforeAll(async () => {
  node = createServer(async (request, response) => {
    const call = JSON.parse(await text(request))
    reached.push(
      [call]
        .flat()
        .map(({ method }) => method)
        .join(),
    )
    response.end(JSON.stringify({ id: 1, result: '0x1' }))
  })
  await new Promise<void>((resolve) => node.listen(0, '127.0.0.1', resolve))
  faults = await startRpcFaults(`http://127.0.0.1:${(node.address() as AddressInfo).port}`)
})
afterEach(() => {
  faults.heal()
  reached = []
})
afterAll(async () => {
  await faults.close()
  node.close()
})

/** Sends a call. Returns the status, or a text for a broken connection. */
async function ask(...methods: string[]): Promise<number | 'broken'> {
  const calls = methods.map((method) => ({ jsonrpc: '2.0', id: 1, method }))
  const body = JSON.stringify(calls.length === 1 ? calls[0] : calls)
  const answer = await fetch(faults.url, { method: 'POST', body }).catch(() => undefined)
  await answer?.text()
  return answer?.status ?? 'broken'
}

describe('startRpcFaults', () => {
  test.each([
    ['error', 503, []],
    ['refuse', 'broken', []],
    ['lose', 'broken', ['eth_call']],
  ] as const)(
    'behavior: for the fault %s, the caller gets %s, and the node gets %j',
    async (kind, answer, passed) => {
      faults.fail({ kind })
      expect(await ask('eth_call')).toBe(answer)
      expect(reached).toEqual(passed)
    },
  )

  test('behavior: delays a call for the fault stall until the fault is healed', async () => {
    faults.fail({ kind: 'stall', method: 'eth_call', delayMs: 600_000 })
    const stalled = ask('eth_call')
    faults.fail({ kind: 'error', method: 'eth_getLogs' })
    // The stalled call was sent first, and still has no response when the second call gets its response.
    expect(await ask('eth_getLogs')).toBe(503)
    expect(reached).toEqual([])
    faults.heal()
    expect(await stalled).toBe(200)
    expect(await ask('eth_call')).toBe(200)
  })

  test('behavior: a fault affects only calls of its method, including batches that contain such a call, and only the given number of times', async () => {
    faults.fail({ kind: 'error', method: 'eth_getLogs', times: 2 })
    expect(await ask('eth_call')).toBe(200)
    expect(await ask('eth_call', 'eth_getLogs')).toBe(503)
    expect(await ask('eth_getLogs')).toBe(503)
    expect(await ask('eth_getLogs')).toBe(200)
    expect(reached).toEqual(['eth_call', 'eth_getLogs'])
  })
})
