import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { ClientError, createClient } from '@tollkeeper/sdk'
import { verifyReceipt } from '@tollkeeper/sdk/audit'
import { requirePayment } from '@tollkeeper/sdk/express'
import express from 'express'

const options = { gatewayUrl: 'https://gateway.example', network: 'base', mockPayments: true } as const
let server: Server
beforeAll(async () => {
  const app = express()
  app.use(requirePayment({ ...options, providerId: 'prov_1', pricing: { usdcPerUnit: '0.05' } }))
  app.get('/', (_request, response) => void response.send('served'))
  server = createServer(app)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
})
afterAll(() => void server.close())

const url = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`

test('pays for a request', async () => {
  const client = createClient({ ...options, walletPrivateKey: `0x${'1'.repeat(64)}` })
  const { data, receipt } = await client.request<string>(url())
  expect([data, receipt?.split('.').length]).toEqual(['served', 3])
})

test('exports the error class that it throws', () => {
  expect(new ClientError('timeout', 'late')).toBeInstanceOf(Error)
  expect(typeof verifyReceipt).toBe('function')
})
