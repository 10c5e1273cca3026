import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createProgram } from '../../apps/cli/program.ts'
import { registerProvider } from '../../apps/devstack/stack/registerProvider.ts'
import { buyForecast } from '../support/mcp.ts'
import { killAll, type RunningCommand, root, runCommand, untilGone } from '../support/processes.ts'
import { useTestStack } from '../support/stack.ts'
import { authorityFile, startTlsProxy } from '../support/tlsProxy.ts'
import { until } from '../support/until.ts'
import { addExampleTests, exampleEnv } from './examples.ts'

const readme = await readFile(`${root}/README.md`, 'utf8')
const sdkReadme = await readFile(`${root}/sdk/README.md`, 'utf8')
const withoutCode = await readFile(`${root}/docs/without-code.md`, 'utf8')
const sellATool = await readFile(`${root}/docs/sell-a-tool.md`, 'utf8')
// The chain plays Base, so that the README's lines run as they stand but for the addresses of the two servers.
const stack = useTestStack({
  chain: { network: 'base' },
  env: { ...exampleEnv, api: { ...exampleEnv.api, UPSTREAM_ALLOW_PRIVATE: 'true' } },
})

/** A fenced block's code, by the word after its language. */
function snippet(name: string, text = readme): string {
  const code = text.match(new RegExp(`\`\`\`ts ${name}\n(.*?)\`\`\``, 's'))?.[1]
  if (code === undefined) throw new Error(`the README has no snippet ${name}`)
  return code
}

function runSnippet(code: string, env: Record<string, string | undefined>): RunningCommand {
  return runCommand(
    ['node', '--conditions=@tollkeeper/source', '--input-type=module-typescript', '--eval', code],
    env,
  )
}

type RunCommand = (words: string[], apiKey: string | undefined) => Promise<string>

/** As the README has it, by npx. */
const runByNpx: RunCommand = async (words, apiKey) => {
  const running = runCommand(['npx', '--no-install', ...words], { TOLLKEEPER_API_KEY: apiKey })
  expect(await running.exited, running.output()).toBe(0)
  return running.stdout()
}

/** The same command line without a process of its own. */
const runHere: RunCommand = async ([, ...words], apiKey) => {
  const written: string[] = []
  const write = vi.spyOn(process.stdout, 'write').mockImplementation((text) => written.push(String(text)) > 0)
  try {
    await createProgram().parseAsync([...words, ...(apiKey ? ['--api-key', apiKey] : [])], { from: 'user' })
  } finally {
    write.mockRestore()
  }
  return written.join('')
}

/** Npx is the same for each command: the first one, which needs no key, goes through it. */
const runFirstByNpx: RunCommand = (words, apiKey) => (apiKey ? runHere : runByNpx)(words, apiKey)

/** Registers a provider by the commands that a text shows, and gives what they answer. */
async function register(text: string, count: number, here: (code: string) => string, run: RunCommand) {
  const address = privateKeyToAddress(generatePrivateKey())
  const shown = [...text.matchAll(/^npx --no-install (tollkeeper provider .*)$/gm)].map(([, command = '']) =>
    here(command),
  )
  expect(shown).toHaveLength(count)
  const registered: Record<string, string> = {}
  for (const command of shown) {
    const words = (command.match(/"[^"]*"|\S+/g) ?? [])
      .map((word) => word.replaceAll('"', ''))
      .map((word) =>
        word === 'prov_…' ? (registered.providerId as string) : word === '0x…' ? address : word,
      )
    const answer = await run([...words, '--gateway', stack.api.url, '--json'], registered.apiKey)
    Object.assign(registered, JSON.parse(answer))
  }
  return registered
}

test("behavior: the README's provider sells to the README's buyer, behind a proxy that takes TLS off", async () => {
  const providerPort = await reservePort()
  const providerUrl = `http://${loopback}:${providerPort}`
  const proxy = await startTlsProxy(providerUrl)
  onTestFinished(() => proxy.close())
  const here = (code: string) =>
    code
      .replaceAll('https://gateway.example', stack.api.url)
      .replaceAll('https://api.example', proxy.url)
      .replace(/\bport: \d+/, `port: ${providerPort}`)

  const [, sell = ''] = readme.split('## Sell')
  const registered = await register(sell, 3, here, runFirstByNpx)
  const provider = runSnippet(here(snippet('provider')), {
    PROVIDER_ID: registered.providerId,
    PROVIDER_API_KEY: registered.apiKey,
  })
  try {
    await until(
      'the provider answers',
      async () => (await fetch(providerUrl).catch(() => undefined)) !== undefined,
    )
    const key = generatePrivateKey()
    await stack.chain.mintUsdc([privateKeyToAddress(key)], parseUsdc('1'))
    const buyer = runSnippet(here(snippet('buyer')), {
      WALLET_PRIVATE_KEY: key,
      NODE_EXTRA_CA_CERTS: authorityFile,
    })
    expect(await buyer.exited, `${buyer.output()}\n${provider.output()}`).toBe(0)
    expect(buyer.stdout()).toContain('celsius: 19')
    expect(buyer.stdout()).toMatch(/^0x[0-9a-f]{64}$/m)
    // What came to it isn't what the buyer called, which it is told once.
    const told = `Buyers are asked to pay for ${proxy.url}, as the endpoint is registered; this request came to ${providerUrl}.`
    expect(provider.output().split(told)).toHaveLength(2)
  } finally {
    process.kill(-(provider.child.pid as number), 'SIGTERM')
    await untilGone(provider)
  }
})

const untilItAnswers = (url: string) =>
  until('it answers', async () => (await fetch(url).catch(() => undefined)) !== undefined)

/** Starts a seller of the SDK's README at a port, behind a proxy that takes TLS off. @returns its origin. */
async function startSeller(name: string, more = ''): Promise<string> {
  const port = await reservePort()
  const proxy = await startTlsProxy(`http://${loopback}:${port}`)
  onTestFinished(() => proxy.close())
  const { providerId, apiKey } = await registerProvider({
    gatewayUrl: stack.api.url,
    name,
    network: 'base',
    address: privateKeyToAddress(generatePrivateKey()),
    endpoints: [{ url: `${proxy.url}/weather`, usdcPerUnit: '0.05' }],
  })
  const code = `${snippet(name, sdkReadme)}\n${more}`
    .replaceAll('4030', `${port}`)
    .replaceAll('https://gateway.example', stack.api.url)
    .replaceAll(`prov_${'0'.repeat(32)}`, providerId)
  const seller = runSnippet(code, { TOLLKEEPER_API_KEY: apiKey })
  onTestFinished(async () => {
    process.kill(-(seller.child.pid as number), 'SIGTERM')
    await untilGone(seller)
  })
  await untilItAnswers(`http://${loopback}:${port}/weather`)
  return proxy.url
}

/** Runs a buyer of the SDK's README as it stands but for the servers' addresses. @returns what it prints. */
async function runBuyer(name: string, sellerUrl: string, more = ''): Promise<string> {
  const key = generatePrivateKey()
  // The key that the README shows has no money of its own either.
  for (const one of [key, `0x${'11'.repeat(32)}`] as const)
    await stack.chain.mintUsdc([privateKeyToAddress(one)], parseUsdc('1'))
  const code = `${snippet(name, sdkReadme)}\n${more}`
    .replaceAll('https://gateway.example', stack.api.url)
    .replaceAll('https://api.example', sellerUrl)
    .replaceAll("'api.example'", `'${new URL(sellerUrl).host}'`)
  const buyer = runSnippet(code, { WALLET_PRIVATE_KEY: key, NODE_EXTRA_CA_CERTS: authorityFile })
  expect(await buyer.exited, `${name}\n${buyer.output()}`).toBe(0)
  return buyer.stdout()
}

test("behavior: each buyer of the SDK's README buys from its sellers, by two transfers and on tabs, and sees it settled", async () => {
  const express = await startSeller('express')
  const handler = await startSeller(
    'handler',
    "import { serve } from '@hono/node-server'\nserve({ fetch: (request) => handler(request), port: 4030 })",
  )
  const hash = /^0x[0-9a-f]{64}$/m
  for (const seller of [express, handler]) {
    const bought = await runBuyer('buy', seller)
    expect(bought).toContain('sunny: true')
    expect(bought).toMatch(hash)
  }
  const onTab = await runBuyer('tabs', express)
  expect(onTab).toMatch(/^tab_[0-9a-f]{32} /m)
  expect(onTab).toMatch(hash)
  expect(await runBuyer('fetch', express)).toContain('200 { sunny: true')
  const kept = "console.log(await (await payingFetch('https://api.example/weather')).json())"
  expect(await runBuyer('keeptabs', express, `${kept}; await close()`)).toContain('sunny: true')
  const limited = "console.log((await client.request('https://api.example/weather')).data)"
  const paid = await runBuyer('limits', express, limited)
  expect(paid).toContain(`paying 50000 base units for ${express}/weather`)
  expect(paid).toContain('sunny: true')
})

test('behavior: what is sold without code reaches the README’s buyer, and the check of docs/without-code.md lets it pass', async () => {
  // The provider's own server, whose only code is the page's check.
  const port = await reservePort()
  const upstreamUrl = `http://${loopback}:${port}`
  const here = (code: string) => code.replaceAll('https://origin.example', upstreamUrl)
  const { providerId, secret, url = '' } = await register(withoutCode, 4, here, runHere)
  expect(url).toBe(`${stack.api.url}/p/${providerId}/forecast`)
  const [, check = ''] = /```ts run\n(.*?)```/s.exec(withoutCode) ?? []
  const program = `
    import { createServer } from 'node:http'
    ${check}
    createServer((request, response) => {
      const isOurs = isOurGateway(request.headers['service-upstream-secret'] as string, process.env.SECRET ?? '')
      response.statusCode = isOurs ? 200 : 403
      response.setHeader('Content-Type', 'application/json').end(JSON.stringify({ celsius: isOurs ? 19 : 0, at: request.url }))
    }).listen(${port}, '${loopback}')`
  const server = runSnippet(program, { SECRET: secret })
  try {
    const direct = async () => (await fetch(upstreamUrl).catch(() => undefined))?.status
    await until('the server answers', async () => (await direct()) !== undefined)
    expect(await direct()).toBe(403)
    const key = generatePrivateKey()
    await stack.chain.mintUsdc([privateKeyToAddress(key)], parseUsdc('1'))
    const buyer = snippet('buyer').replaceAll('https://gateway.example', stack.api.url)
    const running = runSnippet(buyer.replaceAll('https://api.example/forecast', url), {
      WALLET_PRIVATE_KEY: key,
    })
    expect(await running.exited, `${running.output()}\n${server.output()}`).toBe(0)
    expect(running.stdout()).toContain("{ celsius: 19, at: '/v2/forecast' }")
    expect(running.stdout()).toMatch(/^0x[0-9a-f]{64}$/m)
  } finally {
    process.kill(-(server.child.pid as number), 'SIGTERM')
    await untilGone(server)
  }
})

test('behavior: docs/sell-a-tool.md sells the tools of a server that knows nothing of it', async () => {
  const { providerId = '', apiKey = '' } = await register(sellATool, 2, (code) => code, runHere)
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-tool-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const [, prices = ''] = /```json prices\n(.*?)```/s.exec(sellATool) ?? []
  await writeFile(join(folder, 'prices.json'), prices)
  const [, shown = ''] =
    /^TOLLKEEPER_API_KEY=tk_… (npx --no-install tollkeeper mcp sell .*)$/m.exec(sellATool) ?? []
  const words = shown
    .replace('prov_…', providerId)
    .replace('prices.json', join(folder, 'prices.json'))
    .replace('weather-server.js', 'test/support/weatherServer.ts')
    .replace(' -- ', ' --http 0 -- ')
  const running = runCommand(words.split(' '), {
    TOLLKEEPER_API_KEY: apiKey,
    TOLLKEEPER_GATEWAY_URL: stack.api.url,
  })
  onTestFinished(() => killAll(running))
  const [serverUrl = ''] = /http:\S+/.exec(await running.line(/listening on/)) ?? []
  const key = generatePrivateKey()
  await stack.chain.mintUsdc([privateKeyToAddress(key)], parseUsdc('1'))
  const options = { gatewayUrl: stack.api.url, network: 'base', walletPrivateKey: key, serverUrl } as const
  expect(await buyForecast(options)).toMatchObject({ content: [{ text: 'Lisbon: 19 °C' }] })
})

addExampleTests(() => stack)

test('behavior: every npm script that the README names exists, and every file it links to', async () => {
  const { scripts } = JSON.parse(await readFile(`${root}/package.json`, 'utf8'))
  const named = [...readme.matchAll(/(?<!p)npm (?:run )?(start|test|[a-z:]+)(?=[` "])/g)].map(
    ([, name]) => name,
  )
  const npmOwn = new Set(['ci', 'install', 'run', 'pack'])
  for (const name of named) if (!npmOwn.has(name as string)) expect(scripts).toHaveProperty([name as string])
  for (const [, path] of readme.matchAll(/\]\(([^)#]+)\)/g)) {
    if (!path?.startsWith('http')) await expect(readFile(`${root}/${path}`)).resolves.toBeDefined()
  }
})
