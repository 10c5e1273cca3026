import { nameNetwork, shorten } from '../../display/format.ts'
import type { Endpoint, Home, Provider, Wallet } from '../../gateway/answers.ts'
import type { Field } from '../../parts/Form.tsx'

/* The fields that the gateway wants of what is registered here and in the first steps. */

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', '*'] as const

/** The terms of an endpoint, new or existing. */
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
    // The first endpoint has enough fields without these.
    ...(endpoint ? shownFields(endpoint) : []),
  ]
}

/** The fields that show an endpoint to buyers. */
function shownFields(endpoint: Endpoint): Field[] {
  const json = (
    name: 'inputSchema' | 'inputExample' | 'outputSchema' | 'outputExample',
    label: string,
    note: string,
  ) => ({
    name,
    label,
    note,
    value: endpoint[name] == null ? '' : JSON.stringify(endpoint[name]),
    parse: parseJson,
  })
  return [
    flagField('listed', 'Buyers can find it', endpoint.listed, yesOrNo),
    json('inputSchema', 'What it asks for', 'JSON Schema of its query, or of its body. May be empty.'),
    json('inputExample', 'An example of that', 'JSON. May be empty.'),
    json('outputSchema', 'What it answers', 'JSON Schema. May be empty.'),
    json('outputExample', 'An example of that answer', 'JSON. May be empty.'),
  ]
}

/** What isn't JSON goes as it is: the gateway says what is wrong with it. */
function parseJson(text: string): unknown {
  if (text === '') return null
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** A field that is true or false, by what each of them means. */
export function flagField(
  name: string,
  label: string,
  isSet: boolean,
  [yes, no]: readonly [string, string],
): Field {
  return {
    name,
    label,
    value: String(isSet),
    options: [
      ['true', yes],
      ['false', no],
    ],
    parse: (text) => text === 'true',
  }
}

const yesOrNo = ['yes', 'no'] as const
const orNull = (text: string) => text || null

/** How catalogues show a provider. */
export function serviceFields({ listed, serviceName, tags, iconUrl }: Provider): Field[] {
  return [
    flagField('listed', 'Buyers can find what you sell', listed, yesOrNo),
    {
      name: 'serviceName',
      label: 'Name in catalogues',
      value: serviceName ?? '',
      note: 'At most 32 characters of ASCII. May be empty.',
      parse: orNull,
    },
    {
      name: 'tags',
      label: 'Tags',
      value: tags.join(', '),
      note: 'At most five, with commas between.',
      parse: (text) => text.split(/\s*,\s*/).filter(Boolean),
    },
    {
      name: 'iconUrl',
      label: 'Icon',
      value: iconUrl ?? '',
      inputMode: 'url',
      placeholder: 'https://api.example/icon.png',
      note: 'May be empty.',
      parse: orNull,
    },
  ]
}

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

export function providerFields({ name = '', contact }: { name?: string; contact?: string | null }): Field[] {
  return [
    { name: 'name', label: 'Name', value: name, placeholder: 'Weather, Inc.', note: 'As shown to buyers.' },
    {
      name: 'contact',
      label: 'Contact',
      value: contact ?? '',
      placeholder: 'ops@weather.example',
      note: 'Where the operator reaches you. May be empty.',
      parse: orNull,
    },
  ]
}
