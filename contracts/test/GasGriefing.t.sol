// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {Attack, HostileWallet} from "./mocks/Wallets.sol";
import {SettlementTest} from "./support/SettlementTest.sol";

/// @notice If the caller sends too little gas, payments that weren't tried are reported as 0 and can settle later, no
/// good payment is reported as failed, and what was tried stays settled. The tests named `test_griefing_` try a range
/// of gas limits and run on the deployed code only, because instrumented code needs more gas.
contract GasGriefingTest is SettlementTest {
    uint256 private constant COUNT = 8;

    /// Settles with `gasLimit` and checks that a prefix of the good payments has settled and the rest is untouched.
    function _settleWith(
        IBatchSettlement.Payment[] memory payments,
        bytes[] memory signatures,
        bytes memory expected,
        uint256 gasLimit
    ) private returns (uint256 reached) {
        // Cold as at the start of a transaction: the submissions above have warmed these slots.
        vm.cool(address(usdc));
        uint256 supply = usdc.balanceOf(PROVIDER) + usdc.balanceOf(PLATFORM);
        (bool success, bytes memory answer) = address(settlement).call{gas: gasLimit}(
            abi.encodeCall(settlement.settle, (_batch(), payees, payments, signatures))
        );
        if (!success) {
            vm.assertEq(usdc.balanceOf(PROVIDER) + usdc.balanceOf(PLATFORM), supply, "a revert moves nothing");
            return 0;
        }
        bytes memory outcomes = abi.decode(answer, (bytes));
        bool stopped;
        for (uint256 half; half < 2 * outcomes.length; ++half) {
            uint256 shift = half % 2 == 0 ? 4 : 0;
            uint256 outcome = uint8(outcomes[half / 2]) >> shift & 0x0f;
            if (uint8(expected[half / 2]) >> shift & 0x0f == 0) continue;
            if (outcome == 0) stopped = true;
            if (stopped) {
                vm.assertEq(outcome, 0, "nothing is tried after the first that wasn't");
            } else {
                vm.assertEq(outcome, uint8(expected[half / 2]) >> shift & 0x0f, "what was tried has its expected outcome");
                ++reached;
            }
        }
        vm.assertTrue(reached > 0, "a batch in which nothing was tried reverts");
    }

    function test_fuzz_anyGasLimit(uint256 gasLimit) public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, COUNT);
        uint256 reached = _settleWith(payments, new bytes[](0), _repeat(0x11, COUNT), 30_000 + gasLimit % 900_000);
        if (reached == 2 * COUNT) return;
        bytes memory outcomes = _settle(payments);
        for (uint256 half; half < 2 * COUNT; ++half) {
            uint256 outcome = uint8(outcomes[half / 2]) >> (half % 2 == 0 ? 4 : 0) & 0x0f;
            vm.assertEq(outcome, half < reached ? 2 : 1, "the rest settles later, and each half only once");
        }
        vm.assertEq(usdc.balanceOf(PROVIDER), 1 + COUNT * 47_500, "what the provider received");
        vm.assertEq(usdc.balanceOf(PLATFORM), 1 + COUNT * 2_500, "what the platform received");
    }

    /// Gas that suffices to try at least the first authorization of the first payment.
    uint256 private constant ENOUGH_TO_START = 240_000;

    /// Settles the same items with increasing gas limits, in steps small enough to hit the limit at which an item
    /// starts with barely enough gas. Once an authorization has settled, nothing that follows may revert it.
    function _sweep(IBatchSettlement.Payment[] memory payments, bytes[] memory signatures, bytes memory expected)
        private
    {
        uint256 least = 2 * payments.length;
        uint256 most;
        for (uint256 gasLimit = ENOUGH_TO_START; gasLimit < 1_000_000; gasLimit += 2000) {
            uint256 state = vm.snapshotState();
            uint256 reached = _settleWith(payments, signatures, expected, gasLimit);
            vm.assertTrue(reached > 0, "what settled stays settled");
            if (reached < least) least = reached;
            if (reached > most) most = reached;
            vm.revertToState(state);
        }
        vm.assertEq(least, 1, "the smallest number that was tried");
        vm.assertTrue(most >= 2 * payments.length - 1, "the largest number that was tried");
    }

    function test_griefing_aBurnerNeverRevertsTheOthers() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 3);
        Terms memory burner = _terms(3);
        burner.from = address(new HostileWallet(Attack.BURN_ALL_GAS, address(0), ""));
        payments[1] = _pack(burner);
        (payments[1].r, payments[1].vs) = (0, 0);
        _sweep(payments, new bytes[](1), hex"113411");
    }

    function test_griefing_aBurnerWithoutFeeNeverRevertsTheOthers() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 3);
        Terms memory burner = _terms(3);
        burner.from = address(new HostileWallet(Attack.BURN_ALL_GAS, address(0), ""));
        burner.fee = 0;
        payments[1] = _pack(burner);
        (payments[1].r, payments[1].vs) = (0, 0);
        _sweep(payments, new bytes[](1), hex"113011");
    }

    /// The loop over many remaining items that can't be tried must not use up the gas and revert what settled before.
    function test_griefing_aBurnerBeforeALongRest() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 150);
        Terms memory burner = _terms(150);
        burner.from = address(new HostileWallet(Attack.BURN_ALL_GAS, address(0), ""));
        payments[1] = _pack(burner);
        (payments[1].r, payments[1].vs) = (0, 0);
        bytes memory expected = _repeat(0x11, 150);
        expected[1] = 0x34;
        for (uint256 gasLimit = 320_000; gasLimit < 420_000; gasLimit += 4_000) {
            uint256 state = vm.snapshotState();
            uint256 reached = _settleWith(payments, new bytes[](1), expected, gasLimit);
            vm.assertTrue(reached > 0 && reached < 8, "what settled stays settled");
            vm.revertToState(state);
        }
    }

    /// Preparing calls with signatures of the maximum length that the gateway accepts must not use up the gas and
    /// revert what settled before.
    function test_griefing_aBurnerBeforeLongSignatures() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 3);
        bytes[] memory signatures = new bytes[](2);
        signatures[1] = new bytes(1024);
        for (uint256 i = 1; i < 3; ++i) {
            Terms memory terms = _terms(2 + i);
            Attack attack = i == 1 ? Attack.BURN_ALL_GAS : Attack.NO_ANSWER;
            terms.from = address(new HostileWallet(attack, address(0), ""));
            payments[i] = _pack(terms);
            (payments[i].r, payments[i].vs) = (bytes32(i - 1), 0);
        }
        _sweep(payments, signatures, hex"113434");
    }

    /// Looking up used items must not use up the gas and revert what settled before.
    function test_griefing_usedItemsNeverRevertTheOthers() public {
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](40);
        for (uint256 i; i < 40; ++i) {
            Terms memory terms = _terms(i);
            _fund(terms);
            payments[i] = _pack(terms);
            if (i > 0) {
                _submit(terms, _provider(terms));
                _submit(terms, _fee(terms));
            }
        }
        bytes memory expected = _repeat(0x22, 40);
        expected[0] = 0x11;
        _sweep(payments, new bytes[](0), expected);
    }

    function test_args_noCallGas() public {
        IBatchSettlement.Batch memory batch = _batch();
        batch.callGasLimit = 0;
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 3);
        vm.assertEq(settlement.settle(batch, payees, payments, new bytes[](0)), hex"111111", "outcomes");
    }

    function test_args_moreCallGasThanThereIs() public {
        IBatchSettlement.Batch memory batch = _batch();
        batch.callGasLimit = type(uint64).max;
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 3);
        _expectNothingSettled(hex"000000");
        settlement.settle(batch, payees, payments, new bytes[](0));
    }
}
