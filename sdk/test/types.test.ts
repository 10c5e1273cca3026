import { execFile } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { modules, openConsumer, usePackedSdk } from './packed.ts'

// Checks the types of the packed SDK, as its users' compilers read them.

const run = promisify(execFile)
const packed = usePackedSdk()

describe('type-checked', () => {
  const base = { strict: true, noEmit: true, target: 'es2022', lib: ['es2022', 'dom', 'dom.iterable'] }
  const ours = 'typescript/bin/tsc'
  const older = '@arethetypeswrong/core/node_modules/typescript/bin/tsc'
  const buyer = `
    import { createClient, type Client } from '@tollkeeper/sdk'
    import { verifyReceipt } from '@tollkeeper/sdk/audit'
    import { requirePayment } from '@tollkeeper/sdk/fetch'
    import { openReceiptFile } from '@tollkeeper/sdk/files'
    import { parseUsdc } from '@tollkeeper/sdk/protocol'
    import { privateKeyToAccount } from 'viem/accounts'
    const account = privateKeyToAccount('0x')
    const otherSellers = { maxValiditySeconds: 60 }
    export const client: Client = createClient({ gatewayUrl: '', network: 'base', account, otherSellers })
    export const amount: bigint = parseUsdc('1')
    export const paid = requirePayment({ gatewayUrl: '', providerId: '', pricing: { usdcPerUnit: 1 } })
    export const GET = paid((request, { paymentId }, context: { params: string }) =>
      Response.json([request.url, paymentId, context.params]))
    export const total: Promise<string> = verifyReceipt('', '').then(({ totalUsdc }) => totalUsdc)
    export const file = openReceiptFile('')
    // @ts-expect-error: this limit doesn't exist
    createClient({ gatewayUrl: '', network: 'base', account, limits: { perPaymet: '1' } })`
  const x402Buyer = `
    import { keepTabs } from '@tollkeeper/sdk/x402'
    import { x402Client } from '@x402/core/client'
    import { privateKeyToAccount } from 'viem/accounts'
    export const closed: Promise<void> = keepTabs(new x402Client(), privateKeyToAccount('0x')).close()`
  const seller = `
    import { requirePayment } from '@tollkeeper/sdk/express'
    import { requirePayment as requireHonoPayment } from '@tollkeeper/sdk/hono'
    import express from 'express'
    import { Hono } from 'hono'
    const options = { gatewayUrl: '', providerId: '', pricing: { usdcPerUnit: '0.05' } }
    express().get('/', requirePayment(options), (_request, response) => void response.json({}))
    new Hono().get('/', requireHonoPayment(options), (c) => c.text(c.get('payment').paymentId))`

  // Each value occurs in at least one row. Together, the rows cover every kind of module resolution, both compilers and the lowest supported version
  // of viem. Only the first row also checks the declarations of dependencies, which takes long.
  test.each([
    ['a buyer (nodenext, all declarations)', 'viem', ours, 'nodenext', false, buyer],
    ['a buyer (bundler, the lowest viem)', 'viem-lowest', ours, 'bundler', true, buyer],
    ['a buyer (nodenext, an older TypeScript)', 'viem', older, 'nodenext', true, buyer],
    ['a buyer with @x402 (nodenext)', 'viem', ours, 'nodenext', true, x402Buyer],
    ['a seller (bundler)', 'viem', ours, 'bundler', true, seller],
  ])(
    'behavior: the code of %s compiles without errors',
    async (name, viem, tsc, moduleResolution, skipLibCheck, source) => {
      const isSeller = source === seller
      const frameworks = isSeller ? ['hono', 'express', '@types/express', '@types/node'] : ['@x402/core']
      const { folder } = packed
      await mkdir(join(folder, name, 'node_modules/@types'), { recursive: true })
      await openConsumer(packed, name, ['viem', ...frameworks], viem)
      const compilerOptions = {
        ...base,
        skipLibCheck,
        moduleResolution,
        types: isSeller ? ['node'] : [],
        module: moduleResolution === 'bundler' ? 'esnext' : 'nodenext',
      }
      await writeFile(join(folder, name, 'index.ts'), source)
      await writeFile(join(folder, name, 'tsconfig.json'), JSON.stringify({ compilerOptions }))
      const errors = await run(process.execPath, [join(modules, tsc), '-p', join(folder, name)]).then(
        () => '',
        ({ stdout }: { stdout: string }) => stdout,
      )
      expect(errors).toBe('')
    },
  )
})
