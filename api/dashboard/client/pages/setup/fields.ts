import type { Endpoint, Home, Wallet } from '../../answers.ts'
import { nameNetwork, shorten } from '../../format.ts'
import type { Field } from '../../parts/Form.tsx'

/* What the gateway wants to know of what is registered here and in the first steps. */

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', '*'] as const

/** The terms of an endpoint, new or as it is. */
export function endpointFields(wallets: Wallet[], endpoint?: Endpoint): Field[] {
  return [
    {
      name: 'url',
      label: 'URL',
      value: endpoint?.url ?? '',
      inputMode: 'url',
      placeholder: 'https://api.example/forecast',
      note: 'As buyers call it; a path alone, such as /forecast, is sold without code. It may hold :name for one segment, and end in *.',
    },
    {
      name: 'method',
      label: 'Method',
      value: endpoint?.method ?? 'GET',
      options: methods.map((name) => [name, name === '*' ? 'any' : name]),
    },
    {
      name: 'pricing.usdcPerUnit',
      label: 'Price, in USDC',
      value: endpoint?.pricing.usdcPerUnit.replace(/\.?0+$/, '') ?? '',
      inputMode: 'decimal',
      placeholder: '0.01',
      ...(endpoint && { note: 'For new challenges. Those that are out keep theirs.' }),
    },
    {
      name: 'walletIds',
      label: 'Paid on',
      value: endpoint?.networks.map(({ walletId }) => walletId).join(' ') ?? wallets[0]?.walletId ?? '',
      isMany: true,
      options: wallets.map(({ walletId, network, address }) => [
        walletId,
        `${nameNetwork(network)}, to ${shorten(address)}`,
      ]),
      note: 'One wallet a network; the first one that you choose is the default.',
    },
    {
      name: 'description',
      label: 'Description',
      value: endpoint?.description ?? '',
      note: 'Buyers see it. May be empty.',
    },
    {
      name: 'mimeType',
      label: 'Content type of the answer',
      value: endpoint?.mimeType ?? 'application/json',
    },
  ]
}

/** Where a wallet is. */
export function walletFields({ networks }: Home): Field[] {
  return [
    {
      name: 'network',
      label: 'Network',
      value: networks[0]?.network ?? '',
      options: networks.map(({ network }) => [network, nameNetwork(network)]),
    },
    {
      name: 'address',
      label: 'Address',
      placeholder: '0x…',
      note: 'Buyers’ USDC goes straight to it; the gateway never holds it.',
    },
  ]
}

/** Who a provider is. */
export function providerFields({ name = '', contact }: { name?: string; contact?: string | null }): Field[] {
  return [
    { name: 'name', label: 'Name', value: name, placeholder: 'Weather, Inc.', note: 'As shown to buyers.' },
    {
      name: 'contact',
      label: 'Contact',
      value: contact ?? '',
      placeholder: 'ops@weather.example',
      note: 'Where the operator reaches you. May be empty.',
      parse: (text) => text || null,
    },
  ]
}
