import type { ComponentChildren } from 'preact'
import type { Endpoint, Wallet } from '../answers.ts'
import { nameNetwork, shorten } from '../format.ts'
import { href } from '../routing.ts'
import { useForm } from '../useForm.ts'
import { ChecksField, Form, SelectField, TextField } from './Form.tsx'

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const

/** The terms of an endpoint, new or as it is. */
export function EndpointForm(props: {
  wallets: Wallet[]
  endpoint?: Endpoint
  cancel?: () => void
  /** Gets the body of the request: of an endpoint that is there, only what the user changed. */
  save: (body: object) => Promise<void>
  children?: ComponentChildren
}) {
  const { wallets, endpoint, cancel, save, children } = props
  const [firstWallet] = wallets
  const form = useForm(
    {
      url: endpoint?.url ?? '',
      method: endpoint?.method ?? 'GET',
      'pricing.usdcPerUnit': endpoint?.pricing.usdcPerUnit.replace(/\.?0+$/, '') ?? '',
      walletIds: endpoint?.networks.map(({ walletId }) => walletId).join(' ') ?? firstWallet?.walletId ?? '',
      description: endpoint?.description ?? '',
      mimeType: endpoint?.mimeType ?? 'application/json',
    },
    async (values, changed) => {
      const { 'pricing.usdcPerUnit': usdcPerUnit, walletIds, ...others } = endpoint ? changed : values
      await save({
        ...others,
        ...(usdcPerUnit !== undefined && { pricing: { usdcPerUnit: usdcPerUnit.trim() } }),
        ...(walletIds !== undefined && { walletIds: walletIds.split(' ').filter(Boolean) }),
      })
    },
  )
  if (firstWallet === undefined) {
    return (
      <p>
        Say first where the money goes: <a href={href('setup', 'wallets')}>register a wallet</a>.
      </p>
    )
  }
  return (
    <Form form={form} action={endpoint ? 'Save' : 'Add the endpoint'} {...(cancel && { cancel })}>
      {children}
      <TextField
        label="URL"
        field={form.field('url')}
        inputMode="url"
        placeholder="https://api.example/forecast"
        note="As buyers call it; a path alone, such as /forecast, is sold without code. It may hold :name for one segment, and end in *."
      />
      <div class="pair">
        <SelectField
          label="Method"
          field={form.field('method')}
          options={[...methods.map((name) => [name, name] as const), ['*', 'any']]}
        />
        <TextField
          label="Price, in USDC"
          field={form.field('pricing.usdcPerUnit')}
          inputMode="decimal"
          placeholder="0.01"
          note={endpoint && 'For new challenges. Those that are out keep theirs.'}
        />
      </div>
      <ChecksField
        label="Paid on"
        field={form.field('walletIds')}
        options={wallets.map(
          ({ walletId, network, address }) =>
            [walletId, `${nameNetwork(network)}, to ${shorten(address)}`] as const,
        )}
        note="One wallet a network; the first one that you choose is the default."
      />
      <TextField label="Description" field={form.field('description')} note="Buyers see it. May be empty." />
      <TextField label="Content type of the answer" field={form.field('mimeType')} />
    </Form>
  )
}
