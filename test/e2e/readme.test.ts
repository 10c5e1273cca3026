import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { zeroHash } from 'viem'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createProgram } from '../../apps/cli/program.ts'
import { registerProvider } from '../../apps/devstack/stack/registerProvider.ts'
import { cliPath } from '../support/cli.ts'
import { buyForecast } from '../support/mcp.ts'
import { killAll, type RunningCommand, root, runCommand, untilGone } from '../support/processes.ts'
import { useTestStack } from '../support/stack.ts'
import { authorityFile, startTlsProxy, trustAuthority } from '../support/tlsProxy.ts'
import { until } from '../support/until.ts'
import { addExampleTests, exampleEnv } from './examples.ts'

const readme = await readFile(`${root}/README.md`, 'utf8')
const sdkReadme = await readFile(`${root}/sdk/README.md`, 'utf8')
const withoutCode = await readFile(`${root}/docs/without-code.md`, 'utf8')
const sellATool = await readFile(`${root}/docs/sell-a-tool.md`, 'utf8')
const sellPage = await readFile(`${root}/docs/sell.md`, 'utf8')
const buyPage = await readFile(`${root}/docs/buy.md`, 'utf8')
const auditPage = await readFile(`${root}/docs/audit-and-bookkeeping.md`, 'utf8')
// The local chain acts as Base, so that the README's commands run unchanged except for the addresses of the
// two servers.
const stack = useTestStack({
  chain: { network: 'base' },
  env: { ...exampleEnv, api: { ...exampleEnv.api, UPSTREAM_ALLOW_PRIVATE: 'true' } },
})

/** Returns the code of a fenced block, by its language and the word after it. */
function snippet(name: string, text = readme, language = 'ts'): string {
  const code = text.match(new RegExp(`\`\`\`${language} ${name}\n(.*?)\`\`\``, 's'))?.[1]
  if (code === undefined) throw new Error(`the page has no snippet ${name}`)
  return code
}

function runSnippet(code: string, env: Record<string, string | undefined>): RunningCommand {
  return runCommand(
    ['node', '--conditions=@tollkeeper/source', '--input-type=module-typescript', '--eval', code],
    env,
  )
}

type RunCommand = (words: string[], apiKey: string | undefined) => Promise<string>

/** Runs a command by npx, as in the README. */
const runByNpx: RunCommand = async (words, apiKey) => {
  const running = runCommand(['npx', '--no-install', ...words], { TOLLKEEPER_API_KEY: apiKey })
  expect(await running.exited, running.output()).toBe(0)
  return running.stdout()
}

/** Runs the same command line in this process. */
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

/** Runs the first command, which needs no key, by npx. Runs the other commands directly, because npx works the same for each. */
const runFirstByNpx: RunCommand = (words, apiKey) => (apiKey ? runHere : runByNpx)(words, apiKey)

/** Registers a provider by the commands in a text, and returns their results. */
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

test('behavior: the README’s provider, behind a proxy that terminates TLS, sells to the README’s buyer', async () => {
  const providerPort = await reservePort()
  const providerUrl = `http://${loopback}:${providerPort}`
  const proxy = await startTlsProxy(providerUrl)
  onTestFinished(() => proxy.close())
  const here = (code: string) =>
    code
      .replaceAll('https://gateway.example', stack.api.url)
      .replaceAll('https://api.example', proxy.url)
      .replaceAll('4030', `${providerPort}`)

  const [, sell = ''] = readme.split(/^## Sell$|^With Express:$/m)
  const registered = await register(sell, 3, here, runFirstByNpx)
  const provider = runSnippet(here(snippet('express')), {
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
    // The request arrived under another URL than the buyer called, and the provider is warned of that once.
    const warning = `The endpoint is registered for ${proxy.url}, but this request was sent to ${providerUrl}.`
    expect(provider.output().split(warning)).toHaveLength(2)
  } finally {
    process.kill(-(provider.child.pid as number), 'SIGTERM')
    await untilGone(provider)
  }
})

/** Serves a handler from `Request` to `Response` in Node. */
const servesHandler =
  "import { serve } from '@hono/node-server'\nserve({ fetch: (request) => handler(request), port: 4030 })"

const untilItAnswers = (url: string) =>
  until('it answers', async () => (await fetch(url).catch(() => undefined)) !== undefined)

/** The API token that a seller with a login expects. */
const apiToken = 'of-the-pages'

type Sold = { text?: string; path?: string; method?: 'GET' | '*'; more?: string }

/**
 * Starts a seller from a page, by default the SDK's README, at a port, behind a proxy that terminates TLS.
 * @returns its origin.
 */
async function startSeller(
  name: string,
  { text = sdkReadme, path = '/weather', method = 'GET', more = '' }: Sold = {},
): Promise<string> {
  const port = await reservePort()
  const proxy = await startTlsProxy(`http://${loopback}:${port}`)
  onTestFinished(() => proxy.close())
  const { providerId, apiKey } = await registerProvider({
    gatewayUrl: stack.api.url,
    name,
    network: 'base',
    address: privateKeyToAddress(generatePrivateKey()),
    endpoints: [{ url: path.startsWith('/') ? `${proxy.url}${path}` : path, method, usdcPerUnit: '0.05' }],
  })
  const code = `${snippet(name, text)}\n${more}`
    .replaceAll('4030', `${port}`)
    .replaceAll('https://gateway.example', stack.api.url)
    .replaceAll(`prov_${'0'.repeat(32)}`, providerId)
  const seller = runSnippet(code, {
    PROVIDER_ID: providerId,
    PROVIDER_API_KEY: apiKey,
    TOLLKEEPER_API_KEY: apiKey,
    API_TOKEN: apiToken,
  })
  onTestFinished(async () => {
    process.kill(-(seller.child.pid as number), 'SIGTERM')
    await untilGone(seller)
  })
  await untilItAnswers(`http://${loopback}:${port}/`)
  return proxy.url
}

/**
 * Runs a buyer from a page, by default the SDK's README, unchanged except for the servers' addresses.
 * @returns what it prints.
 */
async function runBuyer(name: string, sellerUrl: string, more = '', text = sdkReadme): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'wallet-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const key = generatePrivateKey()
  // Neither the new wallet nor the README's example wallet has money, so both get some.
  for (const one of [key, `0x${'11'.repeat(32)}`] as const)
    await stack.chain.mintUsdc([privateKeyToAddress(one)], parseUsdc('1'))
  const code = `${snippet(name, text)}\n${more}`
    .replaceAll('https://gateway.example', stack.api.url)
    .replaceAll('https://api.example', sellerUrl)
    .replaceAll("'api.example'", `'${new URL(sellerUrl).host}'`)
    .replaceAll("createFileStores('wallet')", `createFileStores('${folder}')`)
  const buyer = runSnippet(code, {
    WALLET_PRIVATE_KEY: key,
    NODE_EXTRA_CA_CERTS: authorityFile,
    API_TOKEN: apiToken,
  })
  expect(await buyer.exited, `${name}\n${buyer.output()}`).toBe(0)
  return buyer.stdout()
}

test('behavior: the code of each buyer in the SDK’s README pays, by two transfers or on a tab, and its payment settles', async () => {
  const express = await startSeller('express')
  const handler = await startSeller('handler', { more: servesHandler })
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
  expect(await runBuyer('login', express)).toContain('sunny: true')
  expect(await runBuyer('quote', express)).toMatch(/^0\.05 .* allowed$/m)
  expect(await runBuyer('stores', express)).toContain('sunny: true')
  const paid = await runBuyer('limits', express, limited)
  expect(paid).toContain(`paying 50000 base units for ${express}/weather`)
  expect(paid).toContain('sunny: true')
})

test.each(['express', 'hono', 'fastify', 'fetch'])(
  'behavior: the seller code for %s in docs/sell.md sells to the fetch code in docs/buy.md',
  async (framework) => {
    const seller = await startSeller(framework, {
      text: sellPage,
      path: '/forecast',
      more: framework === 'fetch' ? servesHandler : '',
    })
    expect(await runBuyer('fetch', seller, '', buyPage)).toMatch(/^200 \{ celsius: 19/)
  },
)

test('the seller with a login in docs/sell.md sells to the buyer with a login in docs/buy.md', async () => {
  const seller = await startSeller('login', { text: sellPage, path: '/forecast' })
  expect(await runBuyer('login', seller, '', buyPage)).toMatch(/celsius: 19, login: true/)
})

test('behavior: the code in docs/sell.md sells the tool of an MCP server', async () => {
  onTestFinished(await trustAuthority())
  const sold = { text: sellPage, path: 'mcp://tool/forecast', method: '*' as const }
  const serverUrl = `${await startSeller('mcp', sold)}/mcp`
  const key = generatePrivateKey()
  await stack.chain.mintUsdc([privateKeyToAddress(key)], parseUsdc('1'))
  const options = { gatewayUrl: stack.api.url, network: 'base', walletPrivateKey: key, serverUrl } as const
  expect(await buyForecast(options)).toMatchObject({ content: [{ text: '19 °C' }] })
})

test('behavior: the commands in docs/sell.md register a wallet, an endpoint and a webhook', async () => {
  const { providerId, apiKey } = await registerProvider({
    gatewayUrl: stack.api.url,
    name: 'Live',
    network: 'base',
    address: privateKeyToAddress(generatePrivateKey()),
    endpoints: [],
  })
  const commands = snippet('live', sellPage, 'sh').trim().split('\n')
  expect(commands).toHaveLength(3)
  for (const command of commands) {
    const words = command
      .split(' ')
      .slice(2)
      .map((word) => word.replace('prov_…', providerId))
      .map((word) => (word === '0x…' ? privateKeyToAddress(generatePrivateKey()) : word))
      // The webhook's host name doesn't resolve.
      .map((word) => word.replace('https://api.example/tollkeeper', 'http://127.0.0.1:9/tollkeeper'))
    const answer = JSON.parse(await runHere([...words, '--gateway', stack.api.url, '--json'], apiKey))
    expect(answer).toMatchObject({
      [`${/(wallet|endpoint|webhook)/.exec(command)?.[1]}Id`]: expect.any(String),
    })
  }
})

test('behavior: the commands in docs/buy.md buy from a shell, and the commands in docs/audit-and-bookkeeping.md audit the month', async () => {
  const port = await reservePort()
  const address = privateKeyToAddress(generatePrivateKey())
  const proxy = await startTlsProxy(`http://${loopback}:${port}`)
  onTestFinished(() => proxy.close())
  const { providerId, apiKey } = await registerProvider({
    gatewayUrl: stack.api.url,
    name: 'Month',
    network: 'base',
    address,
    endpoints: [{ url: `${proxy.url}/forecast`, usdcPerUnit: '0.01' }],
  })
  const seller = runSnippet(
    snippet('express').replaceAll('https://gateway.example', stack.api.url).replaceAll('4030', `${port}`),
    { PROVIDER_ID: providerId, PROVIDER_API_KEY: apiKey },
  )
  onTestFinished(() => killAll(seller))
  await untilItAnswers(`http://${loopback}:${port}/`)
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-month-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const key = generatePrivateKey()
  await stack.chain.mintUsdc([privateKeyToAddress(key)], parseUsdc('1'))
  const now = new Date()
  const [month, next] = [0, 1].map((more) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + more)).toISOString().slice(0, 7),
  ) as [string, string]
  const env = {
    NODE_EXTRA_CA_CERTS: authorityFile,
    DEPLOYMENTS_FILE: stack.env.DEPLOYMENTS_FILE,
    RECEIPT_FILE: 'receipts.jsonl',
    GATEWAY: stack.api.url,
    ID: providerId,
    KEY: apiKey,
    RPC_URL: stack.chain.url,
  }
  /** Runs the lines of a block in a shell, with our `tollkeeper` instead of the one that npx would find. */
  const shell = async (lines: string) => {
    const here = lines
      .replaceAll('npx --no-install tollkeeper', `${process.execPath} ${cliPath}`)
      .replaceAll('https://api.example', proxy.url)
      .replaceAll('https://gateway.example', stack.api.url)
      .replaceAll('0x…', key)
      .replaceAll('2026-11', month)
      .replaceAll('2026-12', next)
    const running = runCommand(['bash', '-euc', here], env, { cwd: folder })
    expect(await running.exited, running.output()).toBe(0)
    return running
  }
  const bought = await shell(snippet('buy', buyPage, 'sh'))
  expect(bought.stdout()).toContain('"celsius":19')
  const [paymentId] = /pay_[0-9a-f]{32}/.exec(bought.output()) ?? []
  await until('it is settled and confirmed', async () => {
    const { body } = await stack.get(`/receipts/${paymentId}`)
    const [, claims = ''] = String(body.receipt).split('.')
    return JSON.parse(Buffer.from(claims, 'base64url').toString()).transactionHash !== zeroHash
  })
  // The export omits the last ten seconds.
  await until('the receipts include it', async () => {
    const answer = await fetch(`${stack.api.url}/providers/${providerId}/receipts`, {
      headers: { authorization: `Bearer ${apiKey}` },
    })
    return (await answer.text()).includes(String(paymentId))
  })
  await shell(snippet('month', auditPage, 'sh'))
  expect(await readFile(join(folder, `audit-${month}.csv`), 'utf8')).toContain(String(paymentId))
  expect(await readFile(join(folder, `statement-${month}.csv`), 'utf8')).toContain(String(paymentId))
  await shell(snippet('buyer', auditPage, 'sh'))
})

test('behavior: the server of docs/without-code.md sells to the README’s buyer, and the check that the page shows accepts the gateway’s request', async () => {
  // The provider's own server, whose only code is the check from the page.
  const port = await reservePort()
  const upstreamUrl = `http://${loopback}:${port}`
  const here = (code: string) => code.replaceAll('https://origin.example', upstreamUrl)
  const [text = '', aboutLogins = ''] = withoutCode.split(/^#+ Callers who also log in$/m)
  const { providerId, apiKey, secret, url = '' } = await register(text, 4, here, runHere)
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
    const [, command = ''] =
      /^npx --no-install (tollkeeper provider upstream .*)$/m.exec(here(aboutLogins)) ?? []
    const words = command.replace('prov_…', String(providerId)).split(' ')
    const answer = await runHere([...words, '--gateway', stack.api.url, '--json'], apiKey)
    expect(JSON.parse(answer)).toMatchObject({ forwardAuthorization: true })
  } finally {
    process.kill(-(server.child.pid as number), 'SIGTERM')
    await untilGone(server)
  }
})

test('behavior: the commands in docs/sell-a-tool.md sell the tools of a server that has no code for payments', async () => {
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

  const command = (words: string) =>
    runHere([...words.split(' '), '--gateway', stack.api.url, '--json'], apiKey)
  const listed = await command(`tollkeeper provider endpoint list --provider ${providerId}`)
  expect(JSON.parse(listed).endpoints).toMatchObject([
    { url: 'mcp://tool/forecast', serverUrl: 'https://tools.example/mcp' },
  ])
})

addExampleTests(() => stack)

test('behavior: every npm script and every linked file in the README exists', async () => {
  const { scripts } = JSON.parse(await readFile(`${root}/package.json`, 'utf8'))
  const code = readme.match(/^```.*?^```|`[^`\n]+`/gms)?.join('\n') ?? ''
  const named = [...code.matchAll(/\bnpm (?:run )?([a-z]+(?::[a-z]+)*)/g)].map(([, name]) => name)
  expect(named).toContain('test:all')
  const npmOwn = new Set(['ci', 'install', 'run', 'pack'])
  for (const name of named) if (!npmOwn.has(name as string)) expect(scripts).toHaveProperty([name as string])
  for (const [, path] of readme.matchAll(/\]\(([^)#]+)\)/g)) {
    if (!path?.startsWith('http')) await expect(readFile(`${root}/${path}`)).resolves.toBeDefined()
  }
})
