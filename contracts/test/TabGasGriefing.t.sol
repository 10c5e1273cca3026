// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {ITabSettlement} from "../interfaces/ITabSettlement.sol";
import {Attack, HostileWallet} from "./mocks/Wallets.sol";
import {TabTest} from "./support/TabTest.sol";

/// @notice If the caller sends too little gas, tabs that weren't tried are reported as 0 and can settle later. No good
/// tab is reported as failed. Tabs that had settled by then stay settled and pay their recipients, never a splitter.
/// The tests named `test_griefing_` try a range of gas limits and run on the deployed code only, because instrumented
/// code needs more gas.
contract TabGasGriefingTest is TabTest {
    bytes4 private constant NOTHING_SETTLED = IBatchSettlement.NothingSettled.selector;

    /// Settles with `gasLimit` and checks that the tabs up to some position end as expected and that the rest is
    /// untouched.
    function _settleWith(bytes memory data, bytes memory expected, uint256 gasLimit)
        private
        returns (uint256 reached, uint256 settled)
    {
        // Cold as at the start of a transaction.
        vm.cool(address(usdc));
        vm.cool(address(tabSettlement));
        vm.prank(KEEPER);
        (bool success, bytes memory answer) = address(tabSettlement).call{gas: gasLimit}(data);
        if (success) {
            bytes memory outcomes = abi.decode(answer, (bytes));
            while (reached < outcomes.length && outcomes[reached] != 0) {
                vm.assertTrue(outcomes[reached] == expected[reached], "what was tried has its expected outcome");
                if (outcomes[reached++] == 0x10) ++settled;
            }
            for (uint256 i = reached; i < outcomes.length; ++i) {
                vm.assertTrue(outcomes[i] == 0, "nothing is tried after the first that wasn't");
            }
            vm.assertTrue(settled > 0, "a batch in which nothing settled reverts");
        }
        _checkGood(settled, "with little gas");
        vm.assertEq(usdc.balanceOf(_refuge(PROVIDER)) + usdc.balanceOf(_refuge(PLATFORM)), 0, "what the splitters received");
    }

    /// Settles with increasing gas limits, in steps small enough to hit the limit at which a tab is tried with barely
    /// enough gas. Checks that more gas never settles fewer tabs. If not even the first tab settles, also checks that this
    /// isn't caused by the second tab's wallet, which burns all of its gas: without the wallet's code, the first tab doesn't
    /// settle either.
    function _sweep(Packed memory packed, bytes memory expected, uint256 from, uint256 to, uint256 step) private {
        bytes memory data = _call(packed);
        address burner = address(uint160(packed.tabs[1].head >> 96));
        uint256 most;
        for (uint256 gasLimit = from; gasLimit < to; gasLimit += step) {
            uint256 state = vm.snapshotState();
            (uint256 reached,) = _settleWith(data, expected, gasLimit);
            vm.revertToState(state);
            if (gasLimit == from) vm.assertEq(reached, 0, "too little for the first");
            vm.assertGe(reached, most, "what settled stays settled");
            most = reached;
            if (reached > 0) continue;
            // Without its code, the burner is a plain account, whose tab fails at little cost.
            vm.etch(burner, "");
            (reached,) = _settleWith(data, expected, gasLimit);
            vm.revertToState(state);
            vm.assertEq(reached, 0, "what settles without a burner");
        }
        vm.assertEq(most, expected.length, "the number reached with the highest limit");
    }

    function _burner(uint256 index) private returns (Bill memory bill) {
        bill = _bill(index);
        bill.from = address(new HostileWallet(Attack.BURN_ALL_GAS, address(0), ""));
    }

    /// Returns `count` tabs. All are good except the second: its wallet burns all of its gas, and the tab has `lines`
    /// lines and a signature of any length.
    function _withBurner(uint256 count, uint256 lines) private returns (Packed memory packed) {
        Bill[] memory bills = _goodBills(0, count);
        bills[1] = _burner(count);
        bills[1].lines = new Line[](0);
        packed = _packTabs(bills);
        packed.tabs[1].head |= lines << 80;
        (packed.tabs[1].r, packed.tabs[1].vs) = (0, 0);
        packed.signatures = new bytes[](1);
        bytes memory all = packed.lines;
        packed.lines = new bytes(all.length + 8 * lines);
        for (uint256 i; i < all.length; ++i) packed.lines[i < 16 ? i : i + 8 * lines] = all[i];
    }

    function test_fuzz_anyGasLimit(uint256 gasLimit) public {
        Bill[] memory bills = _goodBills(0, 6);
        Packed memory packed = _packTabs(bills);
        (uint256 reached,) = _settleWith(_call(packed), _repeat(0x10, 6), 30_000 + gasLimit % 1_200_000);
        if (reached == 6) return;
        bytes memory outcomes = _settle(packed);
        for (uint256 i; i < 6; ++i) {
            vm.assertEq(uint8(outcomes[i]), i < reached ? 0x20 : 0x10, "the rest settles later, and each tab only once");
        }
        _checkGood(6, "in the end");
    }

    function test_griefing_aBurnerNeverRevertsTheOthers() public {
        _sweep(_withBurner(3, 2), hex"103010", 400_000, 1_000_000, 1_500);
    }

    /// Subtracting the burner's many lines from what is due must not use up the gas and revert the other tabs.
    function test_griefing_aBurnerOfManyLines() public {
        _sweep(_withBurner(3, 2_500), hex"103010", 600_000, 3_050_000, 10_000);
    }

    /// The loop over many remaining tabs that can't be tried must not use up the gas and revert the other tabs.
    function test_griefing_aBurnerBeforeALongRest() public {
        bytes memory data = _call(_withBurner(150, 2));
        bytes memory expected = _repeat(0x10, 150);
        expected[1] = 0x30;
        uint256 most;
        for (uint256 gasLimit = 600_000; gasLimit < 1_200_000; gasLimit += 4_000) {
            uint256 state = vm.snapshotState();
            (uint256 reached,) = _settleWith(data, expected, gasLimit);
            vm.revertToState(state);
            vm.assertGe(reached, most, "what settled stays settled");
            most = reached;
        }
        vm.assertTrue(most > 1 && most < 10, "the burner and a few more");
    }

    /// Skipping expired tabs must not use up the gas and revert the other tabs.
    function test_griefing_aBurnerBeforeExpiredOnes() public {
        Packed memory packed = _withBurner(2, 2);
        ITabSettlement.Tab[] memory tabs = new ITabSettlement.Tab[](1_002);
        bytes memory expected = _repeat(0x50, tabs.length);
        (tabs[0], tabs[1]) = (packed.tabs[0], packed.tabs[1]);
        (expected[0], expected[1]) = (0x10, 0x30);
        packed.tabs = tabs;
        _sweep(packed, expected, 400_000, 2_200_000, 5_000);
    }

    /// The most expensive payouts: each provider, the platform, their splitters and the caller are blacklisted, and no
    /// splitter ever held a unit.
    function test_griefing_aBurnerBeforeTheMostExpensivePayouts() public {
        while (splits.length < 12) splits.push(_split(address(uint160(0xB000 + splits.length)), 19, 1));
        Bill memory bill = _bill(0);
        bill.lines = new Line[](12);
        for (uint256 i; i < 12; ++i) {
            bill.lines[i] = Line(i, 10_000);
            usdc.blacklist(address(uint160(splits[i] >> 96)));
            usdc.blacklist(_refuge(address(uint160(splits[i] >> 96))));
        }
        usdc.blacklist(PLATFORM);
        usdc.blacklist(_refuge(PLATFORM));
        usdc.blacklist(KEEPER);
        _fund(bill);
        Bill[] memory bills = new Bill[](2);
        (bills[0], bills[1]) = (bill, _burner(1));
        Packed memory packed = _packTabs(bills);
        (packed.tabs[1].r, packed.tabs[1].vs) = (0, 0);
        packed.signatures = new bytes[](1);
        bytes memory data = _call(packed);
        uint256 most;
        for (uint256 gasLimit = 800_000; gasLimit < 1_500_000; gasLimit += 1_000) {
            uint256 state = vm.snapshotState();
            uint256 reached = _settleDearest(data, gasLimit);
            vm.revertToState(state);
            vm.assertGe(reached, most, "what settled stays settled");
            most = reached;
        }
        vm.assertEq(most, 2, "the burner");
    }

    function _settleDearest(bytes memory data, uint256 gasLimit) private returns (uint256) {
        vm.cool(address(usdc));
        vm.cool(address(factory));
        vm.cool(address(tabSettlement));
        vm.prank(KEEPER);
        (bool success, bytes memory answer) = address(tabSettlement).call{gas: gasLimit}(data);
        if (!success) return 0;
        vm.assertEq(usdc.balanceOf(_refuge(_refuge(PROVIDER))), 9_500, "what waits for the provider");
        vm.assertEq(usdc.balanceOf(address(tabSettlement)), 0, "the contract's balance");
        return abi.decode(answer, (bytes))[1] == 0x30 ? 2 : 1;
    }

    /// If the caller leaves too little gas for a payout, the whole batch reverts. The payout never goes into a splitter
    /// instead.
    function test_griefing_noPayoutIsStarved() public {
        bytes memory data = _call(_packTabs(_goodBills(0, 1)));
        for (uint256 gasLimit = 100_000; gasLimit < 600_000; gasLimit += 1_000) {
            uint256 state = vm.snapshotState();
            _settleWith(data, hex"10", gasLimit);
            vm.revertToState(state);
        }
    }

    function test_args_noCallGas() public {
        Packed memory packed = _packTabs(_goodBills(0, 3));
        uint64[2] memory limits = [0, uint64(tabSettlement.MIN_CALL_GAS() - 1)];
        for (uint256 i; i < 2; ++i) {
            uint256 state = vm.snapshotState();
            bytes memory outcomes = _settleCapped(packed, limits[i]);
            vm.assertEq(outcomes, hex"101010", "outcomes");
            vm.revertToState(state);
        }
    }

    function test_args_moreCallGasThanThereIs() public {
        Packed memory packed = _packTabs(_goodBills(0, 3));
        _expectNothingSettled(hex"000000");
        _settleCapped(packed, type(uint64).max);
    }

    /// A caller may keep more gas than the minimums, for a fork on which payouts take more. The batch has three tabs, six
    /// lines and four payouts.
    function test_args_reserves() public {
        bytes memory data;
        uint64[3] memory counts = [uint64(3), 6, 4];
        for (uint256 i; i < 3; ++i) {
            for (uint256 more; more < 2; ++more) {
                uint256 state = vm.snapshotState();
                ITabSettlement.Batch memory batch = _tabBatch();
                // The rest of the call needs up to 1,000,000 gas. So the 3,000,000 gas below suffice for a reserve of 2,000,000,
                // but not for one of 3,000,000.
                uint64 reserve = (2_000_000 + uint64(more) * 1_000_000) / counts[i];
                if (i == 0) batch.tabGas = reserve;
                else if (i == 1) batch.lineGas = reserve;
                else batch.payoutGas = reserve;
                Packed memory packed = _packTabs(_goodBills(0, 3));
                data = abi.encodeCall(
                    tabSettlement.settle, (batch, packed.splits, packed.tabs, packed.lines, packed.signatures)
                );
                vm.prank(KEEPER);
                (bool success, bytes memory answer) = address(tabSettlement).call{gas: 3_000_000}(data);
                if (more == 0) vm.assertEq(abi.decode(answer, (bytes)), hex"101010", "outcomes with enough gas");
                else vm.assertTrue(!success && bytes4(answer) == NOTHING_SETTLED, "nothing is tried with too little gas");
                vm.revertToState(state);
            }
        }
    }

    function _settleCapped(Packed memory packed, uint64 callGasLimit) private returns (bytes memory) {
        ITabSettlement.Batch memory batch = _tabBatch();
        batch.callGasLimit = callGasLimit;
        return _settle(batch, packed);
    }

    /// Only the attacking wallet's tab fails, and it costs at most the call's gas limit.
    function test_behavior_hostileWallets() public {
        Attack[6] memory attacks = [
            Attack.BURN_ALL_GAS,
            Attack.INVALID_OPCODE,
            Attack.RETURN_BOMB,
            Attack.REVERT_BOMB,
            Attack.REENTER,
            Attack.NO_ANSWER
        ];
        for (uint256 i; i < 12; ++i) {
            uint256 state = vm.snapshotState();
            Bill[] memory bills = _goodBills(0, 3);
            // The wallet re-enters with a batch that would settle if anyone else sent it.
            bytes memory inner = _call(_packTabs(_goodBills(3, 1)));
            bills[1].from = address(new HostileWallet(attacks[i / 2], address(tabSettlement), inner));
            _fund(bills[1]);
            Packed memory packed = _packTabs(bills);
            packed.signatures = new bytes[](1);
            packed.signatures[0] = "hostile";
            // With a compact signature, the overload for plain accounts is called.
            if (i % 2 == 0) (packed.tabs[1].r, packed.tabs[1].vs) = (0, 0);
            vm.assertEq(_settle(packed), hex"103010", "outcomes");
            _checkGood(2, "next to a hostile wallet");
            vm.revertToState(state);
        }
    }
}
