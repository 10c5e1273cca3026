import { useContext, useState } from 'preact/hooks'
import type { ProviderWithKey } from '../../answers.ts'
import { Secret } from '../../parts/Secret.tsx'
import { SessionContext } from '../../session.ts'
import { useAction } from '../../useAction.ts'
import { FirstSteps } from './FirstSteps.tsx'
import { Register } from './Register.tsx'

/** A provider's first minutes: from nothing to the first payment. */
export function StartPage({ open }: { open: (key: string) => Promise<void> }) {
  const session = useContext(SessionContext)
  const [registered, setRegistered] = useState<ProviderWithKey>()
  if (session !== null) return <FirstSteps />
  if (registered === undefined) return <Register done={setRegistered} />
  return <FirstKey registered={registered} open={open} />
}

function FirstKey({
  registered,
  open,
}: {
  registered: ProviderWithKey
  open: (key: string) => Promise<void>
}) {
  const { run, isBusy, problem } = useAction(() => open(registered.apiKey))
  return (
    <div class="sign-in">
      <h1>Your API key</h1>
      <p>
        <b class="break">{registered.name}</b> is registered. With this key you sign in here, and your server
        calls the gateway.
      </p>
      <div class="panel first-key">
        <Secret
          secret={registered.apiKey}
          note="Store it now: it is not shown again, and the gateway keeps only its hash."
        />
        {problem !== undefined && (
          <p class="problem" role="alert">
            {problem}
          </p>
        )}
        <button type="button" disabled={isBusy} onClick={run}>
          I have stored it
        </button>
      </div>
    </div>
  )
}
