import type { Home } from '../answers.ts'
import { nameNetwork } from '../format.ts'
import type { FormState } from '../useForm.ts'
import { SelectField, TextField } from './Form.tsx'

/** Where a wallet is: the fields of a form that registers one. */
export function WalletFields({ form, home }: { form: FormState<'network' | 'address'>; home: Home }) {
  return (
    <>
      <SelectField
        label="Network"
        field={form.field('network')}
        options={home.networks.map(({ network }) => [network, nameNetwork(network)] as const)}
      />
      <TextField
        label="Address"
        field={form.field('address')}
        placeholder="0x…"
        note="Buyers’ USDC goes straight to it; the gateway never holds it."
      />
    </>
  )
}
