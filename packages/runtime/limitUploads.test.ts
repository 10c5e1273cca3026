import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, onTestFinished, test } from 'vitest'
import { limitUploads } from './limitUploads.ts'

test('behavior: releases the memory of an answered request immediately, not only at the next periodic check', async () => {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  const requests: WeakRef<IncomingMessage>[] = []
  const server = createServer((request, response) => {
    requests.push(new WeakRef(request))
    request.resume().once('end', () => response.end('here'))
  })
  // The default check interval of one second would also release the request, but only later.
  limitUploads(server)
  await once(server.listen(0, '127.0.0.1'), 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  const answer = await fetch(`http://127.0.0.1:${port}`, {
    method: 'POST',
    body: 'all of it',
    headers: { connection: 'close' },
  })
  expect(await answer.text()).toBe('here')
  await delay(50)
  collect()
  expect(requests.map((request) => request.deref())).toEqual([undefined])
})
