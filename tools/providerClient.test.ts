import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createProviderClient } from '@tollkeeper/sdk/provider/createProviderClient'
import { expect, test } from 'vitest'
import { readDescription } from './provider/description.ts'
import { renderProvider } from './provider/resources.ts'

const root = join(import.meta.dirname, '..')
const document = await readDescription()

test('the types and methods of @tollkeeper/sdk/provider are those of the gateway', () => {
  for (const [path, text] of renderProvider(document))
    expect(text, `${path}: run npm run generate`).toBe(readFileSync(join(root, path), 'utf8'))
})

test.each([
  ['a new route', '/providers/{id}/coupons', 'getProviderCoupons'],
  ['another method of a route', '/account', 'patchAccount'],
])('rejects %s if the client has no name for it', (_, path, operationId) => {
  const operation = { operationId, summary: 'A new one', responses: {} }
  const paths = { ...document.paths, [path]: { ...document.paths[path], patch: operation } }
  expect(() => renderProvider({ ...document, paths })).toThrow(operationId)
})

test('rejects a name whose operation no longer exists', () => {
  const { '/account': _, ...paths } = document.paths
  expect(() => renderProvider({ ...document, paths })).toThrow(
    /no longer has these operations, so remove their names: getAccount/,
  )
})

test('docs/provider-client.md has each method of the client in its table, and no other', () => {
  const page = readFileSync(join(root, 'docs/provider-client.md'), 'utf8')
  const rows = page.matchAll(/^\| `(\w+)` +\| (`\w+`(?:, `\w+`)*)/gm)
  const listed = [...rows].flatMap(([, resource, methods = '']) =>
    [...methods.matchAll(/\w+/g)].map(([method]) => `${resource}.${method}`),
  )
  const options = { gatewayUrl: 'https://gateway.example', providerId: 'prov_1', apiKey: 'tk_1' }
  const methods = Object.entries(createProviderClient(options)).flatMap(([resource, methods]) =>
    typeof methods === 'object' ? Object.keys(methods).map((method) => `${resource}.${method}`) : [],
  )
  expect(listed.sort()).toEqual(methods.sort())
})
