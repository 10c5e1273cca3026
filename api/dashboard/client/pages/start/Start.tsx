import { useState } from 'preact/hooks'
import type { ProviderWithKey } from '../../answers.ts'
import { ActionButton } from '../../parts/ActionButton.tsx'
import { ShownSecret } from '../../parts/acts.tsx'
import { Register } from './Register.tsx'

/** A provider's first minute: from nothing to an API key, with which the first steps go on. */
export function StartPage({ open }: { open: (key: string) => Promise<void> }) {
  const [registered, setRegistered] = useState<ProviderWithKey>()
  if (registered === undefined) return <Register done={setRegistered} />
  const { name, apiKey } = registered
  return (
    <div class="sign-in">
      <h1>Your API key</h1>
      <p>
        <b class="break">{name}</b> is registered. With this key you sign in here, and your server calls the
        gateway.
      </p>
      <div class="panel form">
        <ShownSecret
          text={apiKey}
          note="Store it now: it is not shown again, and the gateway keeps only its hash."
        />
        <ActionButton label="I have stored it" ask={() => open(apiKey)} />
      </div>
    </div>
  )
}
