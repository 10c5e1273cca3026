import { concat, type Hex, keccak256, numberToHex, stringToHex } from 'viem'
import {
  account,
  buyerOf,
  contract,
  domain,
  linesAsText,
  mostUint40,
  mostUint48,
  splitOf,
  tabMessage,
} from './tabMessage.ts'

const buyer = buyerOf('buyer')
const payer = buyer.address.toLowerCase() as Hex

const terms = {
  issuer: 'https://gateway.example',
  chainId: domain.chainId,
  contract,
  platform: account('platform'),
  rewardShare: 1_000,
}
const tabId = `tab_${'0123456789abcdef'.repeat(2)}`
const state = { tabId, sequence: 1, expiry: 1_800_093_600 }
const micro = { split: splitOf('provider 0', 19, 1), amount: 50_000n }
const ultraMicro = { split: splitOf('provider 1', 9, 1), amount: 7n }

const cases = [
  { name: 'one line', terms, state, lines: [micro] },
  { name: 'the next request', terms, state: { ...state, sequence: 2 }, lines: [micro, ultraMicro] },
  { name: 'lines in another order', terms, state: { ...state, sequence: 2 }, lines: [ultraMicro, micro] },
  {
    name: 'another gateway, no reward',
    terms: { ...terms, issuer: 'https://another.example/x', rewardShare: 0 },
    state,
    lines: [micro],
  },
  { name: 'a line with amount 0', terms, state, lines: [{ ...micro, amount: 0n }] },
  {
    name: 'maximum values',
    terms: { ...terms, rewardShare: 10_000 },
    state: { ...state, sequence: mostUint40, expiry: mostUint40 },
    lines: Array.from({ length: 128 }, (_, index) => ({
      split: splitOf(`provider ${index}`, Number(mostUint48), Number(mostUint48)),
      amount: mostUint48,
    })),
  },
]

async function vectorOf({ name, terms, state, lines }: (typeof cases)[number]) {
  const { commitment, message, typed, digest } = tabMessage({
    ...terms,
    ...state,
    payer,
    lines,
    nonce: keccak256(stringToHex(`x402-tab:${terms.issuer}:${state.tabId}`)),
  })
  return {
    name,
    terms,
    state: { ...state, payer },
    lines: linesAsText(lines),
    commitment,
    value: message.value.toString(),
    validBefore: message.validBefore.toString(),
    nonce: message.nonce,
    digest,
    signature: await buyer.signTypedData(typed),
  }
}

const payload = {
  tab: tabId,
  payer,
  sequence: 3,
  expiry: 1_800_093_600,
  line: 1,
  known: 1,
  splits: [ultraMicro.split],
  amounts: '0x00000000c350000000000007',
  signature: `0x${'1a'.repeat(64)}1b`,
}
type Payload = { [Field in keyof typeof payload]?: unknown }

const read = { amounts: ['50000', '7'], splits: [ultraMicro.split] }
const accept = (name: string, changes: Payload, parsed: { amounts?: string[]; splits?: Hex[] } = {}) => ({
  name,
  payload: { ...payload, ...changes },
  parsed: { ...read, ...parsed },
})
const refuse = (name: string, field: string, changes: Payload) => ({
  name,
  payload: { ...payload, ...changes },
  field,
})
const lines = (count: number, amount: bigint) =>
  concat(Array.from({ length: count }, () => numberToHex(amount, { size: 6 })))

/** Returns the content of `test/vectors/tabs.json`. */
export async function generateTabs() {
  return {
    about:
      'States of tabs, and what the payer signs for each. Payments on a tab: valid ones, and invalid ones with the field that is wrong. Made by test/vectors/generate.ts with viem alone.',
    domain,
    states: await Promise.all(cases.map(vectorOf)),
    payloads: {
      valid: [
        accept('default', {}),
        accept(
          'no line is known yet',
          { known: 0, splits: [micro.split, ultraMicro.split] },
          {
            splits: [micro.split, ultraMicro.split],
          },
        ),
        accept('all lines are known', { known: 2, splits: [] }, { splits: [] }),
        accept(
          'maximum amounts',
          { amounts: lines(2, mostUint48) },
          {
            amounts: [mostUint48.toString(), mostUint48.toString()],
          },
        ),
        accept(
          '128 lines',
          { known: 128, splits: [], amounts: lines(128, 1n) },
          {
            splits: [],
            amounts: Array(128).fill('1'),
          },
        ),
        accept('a signature of 1,024 bytes', { signature: `0x${'ab'.repeat(1024)}` }),
        accept('maximum sequence and expiry', { sequence: mostUint40, expiry: mostUint40 }),
      ],
      invalid: [
        refuse('no tab', 'tab', { tab: undefined }),
        refuse('a tab that is a number', 'tab', { tab: 7 }),
        refuse('a tab without its prefix', 'tab', { tab: tabId.slice(4) }),
        refuse('a short tab', 'tab', { tab: tabId.slice(0, -1) }),
        refuse('a long tab', 'tab', { tab: `${tabId}0` }),
        refuse('a tab in upper case', 'tab', { tab: `tab_${'A'.repeat(32)}` }),
        refuse('a line break after the tab', 'tab', { tab: `${tabId}\n` }),
        refuse('a payer in upper case', 'payer', { payer: buyer.address }),
        refuse('a short payer', 'payer', { payer: payer.slice(0, -1) }),
        refuse('a name for a payer', 'payer', { payer: 'vitalik.eth' }),
        refuse('sequence 0', 'sequence', { sequence: 0 }),
        refuse('a sequence of 2^40', 'sequence', { sequence: mostUint40 + 1 }),
        refuse('a sequence that is text', 'sequence', { sequence: '3' }),
        refuse('a fractional sequence', 'sequence', { sequence: 1.5 }),
        refuse('no expiry', 'expiry', { expiry: undefined }),
        refuse('expiry 0', 'expiry', { expiry: 0 }),
        refuse('an expiry of 2^40', 'expiry', { expiry: mostUint40 + 1 }),
        refuse('a line that does not exist', 'line', { line: 2 }),
        refuse('a line below 0', 'line', { line: -1 }),
        refuse('more known lines than there are', 'known', { known: 3 }),
        refuse('known below 0', 'known', { known: -1 }),
        refuse('splits that are not a list', 'splits', { splits: ultraMicro.split }),
        refuse('a split too few', 'splits', { splits: [] }),
        refuse('a split too many', 'splits', { splits: [micro.split, ultraMicro.split] }),
        refuse('a short split', 'splits[0]', { splits: [ultraMicro.split.slice(0, -1)] }),
        refuse('a split in upper case', 'splits[0]', { splits: [`0x${'A'.repeat(64)}`] }),
        refuse('no amounts', 'amounts', { amounts: '0x' }),
        refuse('amounts that are a list', 'amounts', { amounts: ['50000', '7'] }),
        refuse('amounts with an odd number of digits', 'amounts', { amounts: payload.amounts.slice(0, -1) }),
        refuse('amounts of five bytes', 'amounts', { amounts: payload.amounts.slice(0, -2) }),
        refuse('amounts in upper case', 'amounts', { amounts: payload.amounts.replaceAll('c', 'C') }),
        refuse('129 lines', 'amounts', { known: 129, splits: [], amounts: lines(129, 1n) }),
        refuse('a signature of 63 bytes', 'signature', { signature: `0x${'ab'.repeat(63)}` }),
        refuse('64 bytes that are not a signature', 'signature', { signature: `0x${'ff'.repeat(64)}` }),
        refuse('a signature of 1,025 bytes', 'signature', { signature: `0x${'ab'.repeat(1025)}` }),
        refuse('a signature with an odd number of digits', 'signature', {
          signature: `${payload.signature}0`,
        }),
      ],
    },
  }
}
