// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {ITabSettlement} from "../interfaces/ITabSettlement.sol";
import {ContractWallet} from "./mocks/Wallets.sol";
import {TabTest} from "./support/TabTest.sol";
import {Vm} from "./support/Vm.sol";

/// @notice Every outcome that a tab can have, next to a good tab that settles in all cases.
contract TabOutcomesTest is TabTest {
    uint256 private constant GOOD = 1000;

    /// Settles [first, a good tab] and checks the outcomes, the failures logged, and who received what.
    function _check(Packed memory first, bytes1 outcome, string memory reason) private {
        _append(first, _goodBills(GOOD, 1)[0]);
        vm.recordLogs();
        vm.assertEq(_settle(first), bytes.concat(outcome, hex"10"), "outcomes");
        _checkFailures(vm.getRecordedLogs(), first.tabs[0], reason);
        _checkGood(outcome == 0x10 ? 2 : 1, "after both");
    }

    function _check(Bill memory bill, bytes1 outcome, string memory reason) private {
        _check(_packTabs(_only(bill)), outcome, reason);
    }

    function _append(Packed memory packed, Bill memory bill) private view {
        ITabSettlement.Tab[] memory tabs = new ITabSettlement.Tab[](packed.tabs.length + 1);
        for (uint256 i; i < packed.tabs.length; ++i) tabs[i] = packed.tabs[i];
        tabs[packed.tabs.length] = _packTab(bill);
        packed.tabs = tabs;
        packed.lines = bytes.concat(packed.lines, _packLines(bill));
    }

    /// Checks that there is one AuthorizationFailed if a reason is expected, and none otherwise.
    function _checkFailures(Vm.Log[] memory logs, ITabSettlement.Tab memory tab, string memory reason) private pure {
        uint256 count;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != IBatchSettlement.AuthorizationFailed.selector) continue;
            ++count;
            vm.assertEq(logs[i].topics[1], BATCH_ID, "batchId of the failure");
            vm.assertEq(logs[i].topics[2], bytes32(tab.head >> 96), "from of the failure");
            vm.assertEq(logs[i].topics[3], tab.nonce, "nonce of the failure");
            (uint256 index, bytes memory answer) = abi.decode(logs[i].data, (uint256, bytes));
            vm.assertEq(index, 0, "index of the failure");
            vm.assertEq(_text(answer), reason, "reason of the failure");
        }
        vm.assertEq(count, bytes(reason).length == 0 ? 0 : 1, "failures logged");
    }

    /// Returns the string in an Error(string). USDC leaves nonzero bytes in the padding after it, so the whole revert
    /// data can't be compared.
    function _text(bytes memory answer) private pure returns (string memory) {
        bytes memory arguments = new bytes(answer.length - 4);
        for (uint256 i; i < arguments.length; ++i) arguments[i] = answer[i + 4];
        return abi.decode(arguments, (string));
    }

    function _funded() private returns (Bill memory) {
        return _goodBills(0, 1)[0];
    }

    function test_default_settles() public {
        _check(_funded(), 0x10, "");
    }

    function test_default_events() public {
        Bill[] memory bills = _goodBills(0, 3);
        bills[1].expiry = NOW;
        bills[2].lines = new Line[](1);
        bills[2].lines[0] = Line(1, 50_000);
        vm.expectEmit(true, true, true, true, address(tabSettlement));
        emit ITabSettlement.TabsSettled(
            BATCH_ID,
            PLATFORM,
            REWARD,
            splits,
            abi.encodePacked(
                uint16(2), uint40(7), uint16(0), uint48(40_000), uint16(1), uint48(10_000), uint16(1), uint40(7),
                uint16(1), uint48(50_000)
            )
        );
        vm.expectEmit(true, true, true, true, address(tabSettlement));
        emit IBatchSettlement.BatchSettled(BATCH_ID, KEEPER, address(usdc), 1, 2, 92_000, 8_000, hex"105010");
        _settle(bills);
    }

    /// If a payer settles its own tab with itself as the platform, or with the whole fee as the reward, the event shows
    /// it.
    function test_behavior_theEventNamesTheSignedTerms() public {
        ITabSettlement.Batch memory batch = _tabBatch();
        (batch.feeRecipient, batch.rewardShare) = (_buyer(0), 10_000);
        Bill memory bill = _funded();
        Packed memory packed = _packTabs(_only(bill));
        (packed.tabs[0].r, packed.tabs[0].vs) = _compact(bill.key, _digest(bill, batch));
        vm.expectEmit(true, true, true, true, address(tabSettlement));
        emit ITabSettlement.TabsSettled(
            BATCH_ID, _buyer(0), 10_000, splits, abi.encodePacked(uint16(2), uint40(7), packed.lines)
        );
        vm.assertEq(_settle(batch, packed), hex"10", "outcomes");
        vm.assertEq(usdc.balanceOf(PLATFORM) - 1, 0, "the platform's balance");
        vm.assertEq(usdc.balanceOf(KEEPER) - 1, TO_PLATFORM, "the caller's balance");
    }

    function test_args_triggerAndKeeperAreEchoed() public {
        ITabSettlement.Batch memory batch = _tabBatch();
        (batch.trigger, batch.batchId) = (255, 0);
        Packed memory packed = _packTabs(_goodBills(0, 1));
        vm.expectEmit(true, true, true, true, address(tabSettlement));
        emit IBatchSettlement.BatchSettled(0, KEEPER, address(usdc), 255, 1, 47_000, 3_000, hex"10");
        _settle(batch, packed);
    }

    function test_default_bothParities() public {
        bool[2] memory seen;
        for (uint256 i; !(seen[0] && seen[1]); ++i) {
            Packed memory packed = _packTabs(_goodBills(i, 1));
            seen[uint256(packed.tabs[0].vs) >> 255] = true;
            vm.assertEq(_settle(packed), hex"10", "outcomes");
        }
    }

    function test_args_oneLine() public {
        Bill memory bill = _bill(0);
        bill.lines = new Line[](1);
        bill.lines[0] = Line(1, 50);
        _fund(bill);
        vm.assertEq(_settle(_only(bill)), hex"10", "outcomes");
        _checkBalances(0, 45, 5, "for one line");
    }

    /// Nothing is owed: the nonce is used up, and no one is paid.
    function test_args_noLines() public {
        Bill memory bill = _bill(0);
        bill.lines = new Line[](0);
        vm.expectEmit(true, true, true, true, address(tabSettlement));
        emit ITabSettlement.TabsSettled(BATCH_ID, PLATFORM, REWARD, splits, abi.encodePacked(uint16(0), uint40(7)));
        vm.recordLogs();
        vm.assertEq(_settle(_only(bill)), hex"10", "outcomes");
        // AuthorizationUsed, a Transfer of 0, and this contract's two events.
        vm.assertEq(vm.getRecordedLogs().length, 4, "logs");
        _checkGood(0, "for no lines");
    }

    function test_args_manyLines() public {
        Bill memory bill = _bill(0);
        bill.lines = new Line[](300);
        for (uint256 i; i < 300; ++i) bill.lines[i] = Line(i % 2, 10_000 + i);
        _fund(bill);
        vm.assertEq(_settle(_only(bill)), hex"10", "outcomes");
        vm.assertEq(usdc.balanceOf(bill.from), 0, "the payer's remaining balance");
    }

    function test_args_largestValues() public {
        Bill memory bill = _bill(0);
        (bill.sequence, bill.expiry) = (type(uint40).max, type(uint40).max);
        (bill.lines[0].amount, bill.lines[1].amount) = (type(uint48).max, type(uint48).max);
        _fund(bill);
        vm.expectEmit(true, true, true, true, address(tabSettlement));
        emit ITabSettlement.TabsSettled(
            BATCH_ID,
            PLATFORM,
            REWARD,
            splits,
            abi.encodePacked(
                uint16(2), type(uint40).max, uint16(0), type(uint48).max, uint16(1), type(uint48).max
            )
        );
        vm.assertEq(_settle(_only(bill)), hex"10", "outcomes");
        vm.assertEq(usdc.balanceOf(bill.from), 0, "the payer's remaining balance");
    }

    function test_args_manySplits() public {
        uint256[] memory many = new uint256[](0x0234);
        many[many.length - 1] = splits[0];
        Bill memory bill = _bill(0);
        bill.lines = new Line[](1);
        bill.lines[0].amount = 1_000;
        _fund(bill);
        Packed memory packed = _packTabs(_only(bill));
        packed.splits = many;
        packed.lines = abi.encodePacked(uint16(0x0233), uint48(1_000));
        _settle(packed);
        _checkBalances(950, 0, 50, "for the last of many splits");
    }

    function test_args_expiry() public {
        Bill memory bill = _funded();
        bill.expiry = NOW + 1;
        _check(bill, 0x10, "");
    }

    /// The token alone would still accept an expired tab, because it reads `validBefore` as a time in the far future.
    function test_behavior_expired() public {
        Bill memory bill = _funded();
        bill.expiry = NOW;
        vm.assertGe(_validBefore(bill, _tabBatch()), 1 << 60, "validBefore, as the token reads it");
        _check(bill, 0x50, "");
    }

    function test_behavior_oneSecondLater() public {
        Bill memory bill = _funded();
        Packed memory packed = _packTabs(_only(bill));
        vm.warp(bill.expiry - 1);
        uint256 state = vm.snapshotState();
        vm.assertEq(_settle(packed), hex"10", "outcomes before");
        vm.revertToState(state);
        vm.warp(bill.expiry);
        _expectNothingSettled(hex"50");
        _settle(packed);
    }

    function test_behavior_used() public {
        Packed memory packed = _packTabs(_goodBills(0, 1));
        _settle(packed);
        _append(packed, _goodBills(GOOD, 1)[0]);
        vm.assertEq(_settle(packed), hex"2010", "outcomes");
        _checkGood(2, "each once");
    }

    /// The contract looks up the nonce's state only after the token's call has failed, because the previous tab was
    /// good.
    function test_behavior_usedAfterAGoodOne() public {
        Bill[] memory bills = _goodBills(0, 2);
        _settle(_only(bills[1]));
        vm.assertEq(_settle(bills), hex"1020", "outcomes");
        _checkGood(2, "each once");
    }

    function test_behavior_cancelled() public {
        Bill memory bill = _funded();
        _cancel(bill);
        _check(bill, 0x20, "");
    }

    function _states() private returns (Bill memory older, Bill memory newer) {
        (older, newer) = (_bill(0), _bill(0));
        (older.lines[0].amount, older.sequence) = (30_000, 6);
        _fund(newer);
    }

    /// Of two states of one nonce, the first in the list moves, even if it is the older one.
    function test_behavior_twoStatesInOneBatch() public {
        Bill[] memory bills = new Bill[](2);
        (bills[1], bills[0]) = _states();
        uint256 state = vm.snapshotState();
        vm.assertEq(_settle(bills), hex"1020", "outcomes, the newer first");
        _checkGood(1, "for the newer state");
        vm.revertToState(state);
        (bills[0], bills[1]) = (bills[1], bills[0]);
        vm.assertEq(_settle(bills), hex"1020", "outcomes, the older first");
        _checkBalances(28_500, 9_000, 2_500, "for the older state");
    }

    function test_behavior_anOlderStateLater() public {
        (Bill memory older, Bill memory newer) = _states();
        _settle(_only(newer));
        Packed memory packed = _packTabs(_only(older));
        _expectNothingSettled(hex"20");
        _settle(packed);
        _checkGood(1, "for the newer state");
    }

    function test_behavior_notEnoughBalance() public {
        Bill memory bill = _bill(0);
        usdc.mint(bill.from, _value(bill) - 1);
        _check(bill, 0x30, "ERC20: transfer amount exceeds balance");
    }

    function test_behavior_blacklistedPayer() public {
        Bill memory bill = _funded();
        usdc.blacklist(bill.from);
        _check(bill, 0x30, "Blacklistable: account is blacklisted");
    }

    function test_behavior_foreignSignature() public {
        Packed memory packed = _packTabs(_only(_funded()));
        (packed.tabs[0].r, packed.tabs[0].vs) = _compact(_key(1), _digest(_bill(0), _tabBatch()));
        _check(packed, 0x30, "FiatTokenV2: invalid signature");
    }

    function test_behavior_pausedToken() public {
        Packed memory packed = _packTabs(_goodBills(0, 2));
        usdc.pause();
        _expectNothingSettled(hex"3030");
        _settle(packed);
        usdc.unpause();
        vm.assertEq(_settle(packed), hex"1010", "outcomes once it is unpaused");
    }

    // Contract wallets.

    /// Packs a tab with a long signature, which consists of three copies of a plain signature. Its length isn't a multiple
    /// of 32, and the padding of its last word must not reach the token.
    function _long(uint256 index) private returns (Packed memory packed) {
        Bill memory bill = _bill(index);
        bill.from = address(new ContractWallet(vm.addr(bill.key)));
        _fund(bill);
        packed = _packTabs(_only(bill));
        (packed.tabs[0].r, packed.tabs[0].vs) = (bytes32(uint256(1)), bytes32(uint256(1) << 255));
        packed.signatures = new bytes[](2);
        bytes memory signature = _signature(bill);
        packed.signatures[1] = bytes.concat(signature, signature, signature);
    }

    function test_behavior_longSignature() public {
        _check(_long(0), 0x10, "");
    }

    function test_behavior_wrongLongSignature() public {
        Packed memory packed = _long(0);
        packed.tabs[0].r = 0;
        _check(packed, 0x30, "FiatTokenV2: invalid signature");
    }

    function test_behavior_usedLongSignature() public {
        Packed memory packed = _long(0);
        _settle(packed);
        _append(packed, _goodBills(GOOD, 1)[0]);
        vm.assertEq(_settle(packed), hex"2010", "outcomes");
    }

    // Skipping.

    /// Payer 0 has no balance for its tabs. The tabs of the other payers, 3 and 5, can settle.
    function test_behavior_skipsThePayerThatFailed() public {
        Bill[] memory bills = new Bill[](6);
        for (uint256 i; i < 6; ++i) {
            bills[i] = _bill(i == 3 || i == 5 ? i : 0);
            bills[i].nonce = bytes32(i);
        }
        _fund(bills[3]);
        _fund(bills[5]);
        // The fifth tab is tried, because a good tab of another payer was in between.
        vm.assertEq(_settle(bills), hex"304040103010", "outcomes");
        _checkGood(2, "for the two others");
    }

    /// An expired tab costs no call, and doesn't end the skipping of the payer before it.
    function test_behavior_expiredOnesDontInterrupt() public {
        Bill[] memory bills = new Bill[](4);
        for (uint256 i; i < 4; ++i) {
            bills[i] = _bill(i == 1 ? 1 : 0);
            bills[i].nonce = bytes32(i);
        }
        bills[1].expiry = NOW;
        bills[3] = _goodBills(3, 1)[0];
        vm.assertEq(_settle(bills), hex"30504010", "outcomes");
    }

    function test_behavior_moreBalanceForASmallerOne() public {
        Bill[] memory bills = new Bill[](2);
        (bills[0], bills[1]) = (_bill(0), _bill(0));
        (bills[0].lines[0].amount, bills[1].nonce) = (1, keccak256("second"));
        usdc.mint(bills[0].from, 20_000);
        vm.assertEq(_settle(bills), hex"1030", "outcomes");
    }

    // Errors.

    function test_error_nothingToSettle() public {
        Packed memory packed = _packTabs(new Bill[](0));
        _expectNothingSettled("");
        _settle(packed);
    }

    function test_error_tokenWithoutCode() public {
        ITabSettlement.Batch memory batch = _tabBatch();
        batch.token = address(0xDEAD);
        Packed memory packed = _packTabs(_goodBills(0, 1));
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidToken.selector, batch.token));
        _settle(batch, packed);
    }

    function test_error_unknownSplit() public {
        Packed memory packed = _packTabs(_goodBills(0, 2));
        packed.lines[3 * 8 + 1] = 0x02;
        vm.expectRevert(abi.encodeWithSelector(ITabSettlement.InvalidSplit.selector, 2));
        _settle(packed);
        packed.lines[3 * 8] = 0x01;
        vm.expectRevert(abi.encodeWithSelector(ITabSettlement.InvalidSplit.selector, 0x102));
        _settle(packed);
        packed.splits = new uint256[](0);
        vm.expectRevert(abi.encodeWithSelector(ITabSettlement.InvalidSplit.selector, 0));
        _settle(packed);
    }

    function test_error_linesOfAnotherLength() public {
        Packed memory packed = _packTabs(_goodBills(0, 2));
        bytes memory lines = packed.lines;
        for (uint256 length; length < 50; ++length) {
            if (length == lines.length) continue;
            packed.lines = new bytes(length);
            for (uint256 i; i < length && i < lines.length; ++i) packed.lines[i] = lines[i];
            vm.expectRevert(abi.encodeWithSelector(ITabSettlement.InvalidLines.selector, length));
            _settle(packed);
        }
    }

    /// The error doesn't depend on the calldata after the lines, such as bytes that would be unknown splits.
    function test_error_lineCountBeyondTheLines() public {
        Packed memory packed = _packTabs(_goodBills(0, 2));
        packed.signatures = new bytes[](1);
        packed.signatures[0] = abi.encode(type(uint256).max, type(uint256).max);
        for (uint256 bit; bit < 16; ++bit) {
            packed.tabs[1].head ^= 1 << 80 + bit;
            vm.expectRevert(abi.encodeWithSelector(ITabSettlement.InvalidLines.selector, packed.lines.length));
            _settle(packed);
            packed.tabs[1].head ^= 1 << 80 + bit;
        }
    }

    function test_error_signatureOutside() public {
        Packed memory packed = _packTabs(_goodBills(0, 1));
        (packed.tabs[0].r, packed.tabs[0].vs) = (bytes32(uint256(1)), 0);
        packed.signatures = new bytes[](1);
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.InvalidSignatureIndex.selector, 1));
        _settle(packed);
    }

    function test_default_constants() public view {
        vm.assertEq(tabSettlement.MIN_CALL_GAS(), settlement.MIN_CALL_GAS(), "MIN_CALL_GAS");
        vm.assertEq(tabSettlement.MIN_TAB_GAS(), 500, "MIN_TAB_GAS");
        vm.assertEq(tabSettlement.MIN_LINE_GAS(), 250, "MIN_LINE_GAS");
        vm.assertEq(tabSettlement.MIN_PAYOUT_GAS(), 55_000, "MIN_PAYOUT_GAS");
        vm.assertEq(address(tabSettlement.SPLITTER_FACTORY()), address(factory), "SPLITTER_FACTORY");
    }
}
