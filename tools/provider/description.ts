import { createApp } from '@tollkeeper/api/app'
import { gatewayDocument } from '@tollkeeper/api/http/document'
import { rotateReceiptKeys, toReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { createLogger } from '@tollkeeper/runtime/log'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { createPublicClient, http, zeroAddress, zeroHash } from 'viem'
import { testGatewaySettings } from '../../test/support/gateway.ts'

/** The parts of JSON Schema that the gateway's document uses. */
export type Schema = {
  $ref?: string
  type?: string | string[]
  enum?: unknown[]
  items?: Schema
  properties?: Record<string, Schema>
  required?: string[]
  additionalProperties?: boolean | Schema
  allOf?: Schema[]
  anyOf?: Schema[]
  oneOf?: Schema[]
  description?: string
  format?: string
}

export type Parameter = {
  name: string
  in: 'path' | 'query' | 'header'
  required?: boolean
  description?: string
  schema: Schema
}

type Body = { content?: Record<string, { schema: Schema }>; description?: string }

export type Operation = {
  operationId: string
  summary: string
  description?: string
  parameters?: Parameter[]
  requestBody?: Body
  responses: Record<string, Body>
}

/** The parts of the gateway's OpenAPI document that the generator reads. */
export type Description = {
  paths: Record<string, Record<string, Operation>>
  webhooks: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema> }
}

/** Returns the gateway's OpenAPI document. The gateway renders it without connecting to its database or chain, so neither has to exist. */
export async function readDescription(): Promise<Description> {
  const nowhere = '127.0.0.1:1'
  const sql = openDatabase({ url: `postgres://none@${nowhere}/none`, max: 1, applicationName: 'generate' })
  const client = createPublicClient({ transport: http(`http://${nowhere}`) })
  const deployment = {
    batchSettlement: zeroAddress,
    splitterFactory: zeroAddress,
    tabSettlement: zeroAddress,
    usdc: zeroAddress,
    startBlock: 0,
  }
  const served = {
    network: networks.base,
    deployment,
    token: zeroAddress,
    client,
    clients: [client],
    domainSeparator: zeroHash,
  }
  try {
    const app = createApp({
      sql,
      networks: [served],
      settings: testGatewaySettings,
      receiptKeys: toReceiptKeys(rotateReceiptKeys(undefined)),
      log: createLogger('generate', 'error'),
    })
    const response = await app.request(gatewayDocument)
    if (!response.ok)
      throw new Error(`${gatewayDocument} answered ${response.status}: ${await response.text()}`)
    return (await response.json()) as Description
  } finally {
    await sql.end()
  }
}
