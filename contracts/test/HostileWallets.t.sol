// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {Attack, HostileWallet} from "./mocks/Wallets.sol";
import {SettlementTest} from "./support/SettlementTest.sol";

/// @notice ERC-1271 wallets that attack their batch. Only their own payment fails, and it costs at most the call's gas
/// limit.
contract HostileWalletsTest is SettlementTest {
    function test_behavior_burnAllGas() public {
        _attack(Attack.BURN_ALL_GAS, CALL_GAS, false);
    }

    function test_behavior_invalidOpcode() public {
        _attack(Attack.INVALID_OPCODE, CALL_GAS, false);
    }

    function test_behavior_returnBomb() public {
        _attack(Attack.RETURN_BOMB, CALL_GAS, false);
    }

    function test_behavior_revertBomb() public {
        _attack(Attack.REVERT_BOMB, CALL_GAS, false);
    }

    function test_behavior_reenter() public {
        _attack(Attack.REENTER, CALL_GAS, false);
    }

    function test_behavior_noAnswer() public {
        _attack(Attack.NO_ANSWER, CALL_GAS, false);
    }

    function test_behavior_attacksWithinALargeLimit() public {
        _attack(Attack.BURN_ALL_GAS, 3_000_000, false);
        _attack(Attack.RETURN_BOMB, 3_000_000, false);
        _attack(Attack.REVERT_BOMB, 3_000_000, false);
        _attack(Attack.REENTER, 3_000_000, false);
    }

    function test_behavior_attacksWithACompactSignature() public {
        _attack(Attack.BURN_ALL_GAS, CALL_GAS, true);
        _attack(Attack.RETURN_BOMB, CALL_GAS, true);
        _attack(Attack.REVERT_BOMB, CALL_GAS, true);
        _attack(Attack.REENTER, CALL_GAS, true);
    }

    uint256 private _next;

    /// @param compact Whether the wallet's signature is 65 bytes, so that the overload for plain accounts is called.
    function _attack(Attack attack, uint64 callGasLimit, bool compact) private {
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](3);
        payments[0] = _goodPayments(_next++, 1)[0];
        payments[2] = _goodPayments(_next++, 1)[0];
        Terms memory own = _terms(_next++);
        _fund(own);
        // The wallet re-enters with a batch that would settle if anyone else sent it.
        bytes memory reentrance = abi.encodeCall(settlement.settle, (_batch(), payees, _one(own), new bytes[](0)));
        Terms memory terms = _terms(_next++);
        terms.from = address(new HostileWallet(attack, address(settlement), reentrance));
        _fund(terms);
        payments[1] = _pack(terms);
        if (!compact) (payments[1].r, payments[1].vs) = (0, 0);
        bytes[] memory signatures = new bytes[](1);
        signatures[0] = "hostile";
        IBatchSettlement.Batch memory batch = _batch();
        batch.callGasLimit = callGasLimit;

        uint256 gasBefore = gasleft();
        bytes memory outcomes = settlement.settle(batch, payees, payments, signatures);
        uint256 gasUsed = gasBefore - gasleft();

        vm.assertEq(outcomes, hex"113411", "outcomes");
        vm.assertEq(usdc.balanceOf(terms.from), terms.amount + terms.fee, "the wallet's balance");
        vm.assertTrue(!usdc.authorizationState(own.from, own.nonce), "the payment of the reentrant batch");
        // Besides the limit, the deployed code needs 186,000 gas, and the code instrumented for coverage 287,000.
        vm.assertLe(gasUsed, 300_000 + callGasLimit, "the gas of the whole batch");
    }

    /// Every item but the last burns its whole limit. The batch still reaches the last one.
    function test_behavior_manyBurners() public {
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](21);
        for (uint256 i; i < 20; ++i) {
            Terms memory terms = _terms(i);
            terms.from = address(new HostileWallet(Attack.BURN_ALL_GAS, address(0), ""));
            payments[i] = _pack(terms);
            (payments[i].r, payments[i].vs) = (0, 0);
        }
        payments[20] = _goodPayments(20, 1)[0];
        bytes memory outcomes = settlement.settle(_batch(), payees, payments, new bytes[](1));
        vm.assertEq(outcomes, bytes.concat(_repeat(0x34, 20), hex"11"), "outcomes");
    }
}
