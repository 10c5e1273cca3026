/** What settling costs on the real USDC: the floor, ours, Multicall3 and two transactions a payment, in one run. */
import { parseArgs } from 'node:util'
import {
  type Address,
  createTestClient,
  createWalletClient,
  decodeFunctionResult,
  encodeFunctionData,
  type Hex,
  http,
  keccak256,
  multicall3Abi,
  numberToHex,
  parseAbi,
  parseSignature,
  publicActions,
  size,
  toHex,
} from 'viem'
import { hardhat } from 'viem/chains'
import { privateKeyToAccount, type PrivateKeyAccount } from 'viem/accounts'
import { batchSettlementAbi } from '#protocol/abi/batchSettlement'
import { usdcAbi } from '#protocol/abi/usdc'
import { networks } from '#protocol/networks'
import { readFileSync } from 'node:fs'
import { devAccount } from '../scripts/chain/accounts.ts'
import { multicall3Address } from '../scripts/chain/prepareChain.ts'
import { startLocalChain } from '../scripts/chain/startLocalChain.ts'
import { runtimeCode } from '../scripts/deploy/generated/batchSettlement.ts'

const sizes = [1, 10, 50, 100, 150] as const
const amount = 9_500n
const fee = 500n

type Signed = { from: Address; to: Address; value: bigint; nonce: Hex; r: Hex; s: Hex; v: bigint }
type Payment = { head: bigint; provider: Signed; fee: Signed }

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { json: { type: 'boolean', default: false } } })
  const chain = await startLocalChain({ blockTimeMs: 0 })
  try {
    const { usdc, batchSettlement } = chain.deployments.localhost!
    const transport = http(chain.url)
    const client = createTestClient({ mode: 'hardhat', chain: hardhat, transport }).extend(publicActions)
    const keeper = createWalletClient({ chain: hardhat, transport, account: devAccount(1) })
    const domain = { ...networks.localhost.eip712, chainId: chain.chainId, verifyingContract: usdc }
    const validBefore = BigInt(Math.floor(Date.now() / 1000)) + 93_600n
    const platform = privateKeyToAccount(keccak256(toHex('platform'))).address
    const provider = privateKeyToAccount(keccak256(toHex('provider'))).address
    const buyers = Array.from({ length: 150 }, (_, i) => privateKeyToAccount(keccak256(toHex(`buyer ${i}`))))
    await chain.mintUsdc([platform, provider, ...buyers.map((b) => b.address)], 100_000_000n)

    const sign = async (buyer: PrivateKeyAccount, to: Address, value: bigint, nonce: Hex): Promise<Signed> => {
      const message = { from: buyer.address, to, value, validAfter: 0n, validBefore, nonce }
      const { r, s, yParity } = parseSignature(
        await buyer.signTypedData({ domain, primaryType: 'TransferWithAuthorization', types: { TransferWithAuthorization: [
          { name: 'from', type: 'address' }, { name: 'to', type: 'address' }, { name: 'value', type: 'uint256' },
          { name: 'validAfter', type: 'uint256' }, { name: 'validBefore', type: 'uint256' }, { name: 'nonce', type: 'bytes32' } ] }, message }),
      )
      return { from: buyer.address, to, value, nonce, r, s, v: 27n + BigInt(yParity) }
    }
    const pay = async (buyer: PrivateKeyAccount, to: Address, seed: string, payeeIndex = 0): Promise<Payment> => {
      const nonce = keccak256(toHex(seed))
      return {
        head: (BigInt(buyer.address) << 96n) | (BigInt(payeeIndex) << 80n) | validBefore,
        provider: await sign(buyer, to, amount, nonce),
        fee: await sign(buyer, platform, fee, keccak256(nonce)),
      }
    }
    const vs = (a: Signed) => numberToHex(BigInt(a.s) | ((a.v - 27n) << 255n), { size: 32 })
    const settleData = (payments: Payment[], payees: Address[] = [provider]) =>
      encodeFunctionData({
        abi: batchSettlementAbi,
        functionName: 'settle',
        args: [
          { token: usdc, feeRecipient: platform, batchId: keccak256('0x01'), trigger: 1, callGasLimit: 150_000n },
          payees,
          payments.map((p) => ({
            head: p.head,
            values: (amount << 128n) | fee,
            nonce: p.provider.nonce,
            feeNonce: numberToHex(0, { size: 32 }),
            r: p.provider.r, vs: vs(p.provider), feeR: p.fee.r, feeVs: vs(p.fee),
          })),
          [],
        ],
      })
    const transferData = (a: Signed) =>
      encodeFunctionData({
        abi: usdcAbi, functionName: 'transferWithAuthorization',
        args: [a.from, a.to, a.value, 0n, validBefore, a.nonce, Number(a.v), a.r, a.s],
      })
    const multicallData = (payments: Payment[]) =>
      encodeFunctionData({
        abi: multicall3Abi, functionName: 'aggregate3',
        args: [payments.flatMap((p) => [p.provider, p.fee]).map((a) => ({ target: usdc, allowFailure: true, callData: transferData(a) }))],
      })
    const gasOf = async (to: Address, data: Hex, gas = 16_777_216n) => {
      const hash = await keeper.sendTransaction({ to, data, gas })
      const receipt = await client.waitForTransactionReceipt({ hash, pollingInterval: 5 })
      return receipt
    }
    const isolated = async <T>(body: () => Promise<T>): Promise<T> => {
      const id = await client.snapshot()
      try { return await body() } finally { await client.revert({ id }) }
    }
    const floorAbi = parseAbi(['function measure(address token, bytes[] calls) returns (uint256)'])
    const floorCode = JSON.parse(readFileSync('artifacts/contracts/test/mocks/GasFloor.sol/GasFloor.json','utf8')).deployedBytecode
    const floorAddress = '0x00000000000000000000000000000000000f1007'
    await client.setCode({ address: floorAddress, bytecode: floorCode })
    const floorOf = async (payments: Payment[]) => {
      const data = encodeFunctionData({ abi: floorAbi, functionName: 'measure', args: [usdc, payments.flatMap((p) => [transferData(p.provider), transferData(p.fee)])] })
      const { data: result } = await client.call({ to: floorAddress, data, gas: 16_777_216n })
      return Number(decodeFunctionResult({ abi: floorAbi, functionName: 'measure', data: result ?? '0x' }))
    }
    if (process.env.TRACE) {
      const ps: Payment[] = []
      for (let i = 0; i < 12; i++) ps.push(await pay(buyers[i]!, provider, `t ${i}`))
      const data = settleData(ps)
      const rc = await gasOf(batchSettlement, data)
      const bytes = Buffer.from(data.slice(2), 'hex'); let cd = 0; for (const b of bytes) cd += b ? 16 : 4
      const tr = await client.request({ method: 'debug_traceTransaction', params: [rc.transactionHash, { disableStorage: true, disableMemory: true, disableStack: true }] } as never) as { structLogs: { op: string; gasCost: number; depth: number; pc: number }[] }
      const top = tr.structLogs.filter((l) => l.depth === 1)
      const calls = top.map((l, i) => [l.op, i] as const).filter(([op]) => op === 'CALL').map(([, i]) => i)
      const seg = top.slice(calls[6]! + 1, calls[8]!)
      const hist: Record<string, [number, number]> = {}
      let sum = 0
      for (const l of seg) { if (l.op === 'CALL') continue; sum += l.gasCost; const h = hist[l.op] ??= [0, 0]; h[0]++; h[1] += l.gasCost }
      console.log('calldata per payment', cd / 12, 'exec per payment', sum, 'ops', seg.length)
      console.log(Object.entries(hist).sort((a, b) => b[1][1] - a[1][1]).map(([k, v]) => `${k} ${v[0]} ${v[1]}`).join('\n'))
      if (process.env.TRACE === '2') console.log(seg.map((l) => l.op).join(' '))
      return
    }
    for (const who of ['differentBuyers', 'oneBuyer'] as const) {
      const all: Payment[] = []
      for (let i = 0; i < 150; i++) all.push(await pay(who === 'oneBuyer' ? buyers[0]! : buyers[i]!, provider, `${who} ${i}`))
      for (const n of sizes) {
        const payments = all.slice(0, n)
        const floor = (await floorOf(payments)) / n
        const ours = await isolated(() => gasOf(batchSettlement, settleData(payments)))
        const multi = await isolated(() => gasOf(multicall3Address, multicallData(payments)))
        const o = Number(ours.gasUsed) / n, m = Number(multi.gasUsed) / n
        console.log(who, n, ours.status, multi.status, 'floor', Math.round(floor), 'ours', Math.round(o), 'multi', Math.round(m), 'over', ((o / floor - 1) * 100).toFixed(2), 'below', ((1 - o / m) * 100).toFixed(2))
        if (n === 100) await isolated(async () => {
          let sum = 0
          for (const p of payments.slice(0, 10)) for (const a of [p.provider, p.fee]) sum += Number((await gasOf(usdc, transferData(a))).gasUsed)
          console.log('individual', sum / 10, 'below', ((1 - o / (sum/10)) * 100).toFixed(2))
        })
        if (n === 100) await isolated(async () => {
          await gasOf(batchSettlement, settleData(payments))
          const lost = await gasOf(batchSettlement, settleData(payments))
          console.log('lost', lost.status, lost.gasUsed)
        })
      }
    }
    const payees = Array.from({ length: 150 }, (_, i) => privateKeyToAccount(keccak256(toHex(`new provider ${i}`))).address)
    const fresh: Payment[] = []
    for (let i = 0; i < 150; i++) fresh.push(await pay(buyers[i]!, payees[i]!, `fresh ${i}`, i))
    const r = await isolated(() => gasOf(batchSettlement, settleData(fresh, payees)))
    console.log('150 new', r.status, r.gasUsed, r.logs.length, size(runtimeCode))
  } finally {
    await chain.close()
  }
  void values
}
