import { isTool } from '../../display/endpoints.ts'
import { nameNetwork, shorten } from '../../display/format.ts'
import type { Endpoint, Home, Provider, Wallet } from '../../gateway/answers.ts'
import type { Field } from '../../parts/Form.tsx'

/* The form fields for wallets, endpoints and providers. The setup pages and the first steps use the same fields. */

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', '*'] as const

/** Returns the fields for the terms of an endpoint, new or existing. */
export function endpointFields(wallets: Wallet[], endpoint?: Endpoint): Field[] {
  return [
    {
      name: 'url',
      label: 'URL',
      value: endpoint?.url ?? '',
      inputMode: 'url',
      placeholder: 'https://api.example/forecast',
      note: 'The URL that buyers call. Enter only a path, such as /forecast, to sell without code. Use :name for one path segment, and * at the end for the rest of the path.',
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
      ...(endpoint && { note: 'Applies to new challenges. Challenges already issued keep their price.' }),
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
      note: 'One wallet per network. The first one that you choose is the default.',
    },
    {
      name: 'description',
      label: 'Description',
      value: endpoint?.description ?? '',
      note: 'Shown to buyers. Optional.',
    },
    {
      name: 'mimeType',
      label: 'Content type of the response',
      value: endpoint?.mimeType ?? 'application/json',
    },
    ...(endpoint && isTool(endpoint) ? [serverField(endpoint)] : []),
    // These fields are omitted in the form for the first endpoint, which has enough fields without them.
    ...(endpoint ? shownFields(endpoint) : []),
  ]
}

/** Returns the field for the URL of the server that has a tool. */
export function serverField(endpoint?: Endpoint): Field {
  return {
    name: 'serverUrl',
    label: 'MCP server',
    value: endpoint?.serverUrl ?? '',
    inputMode: 'url',
    placeholder: 'https://tools.example/mcp',
    note: 'Only for a tool, mcp://tool/name: the URL at which buyers reach its server. Optional.',
    parse: orNull,
  }
}

/** Returns the fields that describe an endpoint to buyers. */
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
    json('inputSchema', 'Input schema', 'JSON Schema of the query or the body. Optional.'),
    json('inputExample', 'Input example', 'JSON. Optional.'),
    json('outputSchema', 'Output schema', 'JSON Schema. Optional.'),
    json('outputExample', 'Output example', 'JSON. Optional.'),
  ]
}

/** Returns the parsed JSON. Invalid JSON is sent unchanged, so that the gateway reports the error in it. */
function parseJson(text: string): unknown {
  if (text === '') return null
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Returns a field that is true or false, with a text for each value. */
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

/** Returns the fields that describe a provider in catalogs. */
export function serviceFields({ listed, serviceName, tags, iconUrl }: Provider): Field[] {
  return [
    flagField('listed', 'Buyers can find what you sell', listed, yesOrNo),
    {
      name: 'serviceName',
      label: 'Name in catalogs',
      value: serviceName ?? '',
      note: 'At most 32 ASCII characters. Optional.',
      parse: orNull,
    },
    {
      name: 'tags',
      label: 'Tags',
      value: tags.join(', '),
      note: 'At most five, separated by commas.',
      parse: (text) => text.split(/\s*,\s*/).filter(Boolean),
    },
    {
      name: 'iconUrl',
      label: 'Icon',
      value: iconUrl ?? '',
      inputMode: 'url',
      placeholder: 'https://api.example/icon.png',
      note: 'Optional.',
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
      note: 'Where the operator reaches you. Optional.',
      parse: orNull,
    },
  ]
}
